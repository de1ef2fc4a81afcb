/// \file  Tasks answered by several threads of this process, for a caller that hears of it in one.
#pragma once

#include <functional>
#include <span>

#include "fed/exchange/client.h"
#include "fed/exchange/fabric.h"

namespace evenkeel {

/// Answers the tasks of `clients`, at most `threads` at a time, each by `work` in a thread of its own. Handlers of
/// `exchange` are called in the caller's thread. When one of them or `work` throws, the others stop after their step,
/// and the first error is thrown.
void exchange_in_parallel(std::span<const ClientProfile> clients, const Exchange& exchange, size_t threads,
                          const std::function<Reply(const Task& task, const OnProgress& on_progress)>& work);

}  // namespace evenkeel
