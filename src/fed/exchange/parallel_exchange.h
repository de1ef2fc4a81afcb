/// \file  Runs the tasks of an exchange in several threads of this process.
#pragma once

#include <functional>
#include <span>

#include "fed/exchange/client.h"
#include "fed/exchange/fabric.h"

namespace evenkeel::fed {

/// Runs `work` on the task of each client, in a thread of its own, at most `threads` at a time. A thread is joined
/// before its reply is passed on. The callbacks of `exchange` run in the caller's thread. If a callback or `work`
/// throws, the other threads stop after their current step and the first error is rethrown.
/// \throws kConfig when the system cannot start a thread
void exchange_in_parallel(std::span<const methods::ClientProfile> clients, const Exchange& exchange, size_t threads,
                          const std::function<Reply(const Task& task, const OnProgress& on_progress)>& work);

}  // namespace evenkeel::fed
