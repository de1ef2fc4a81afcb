/// \file  Texts for failed system calls that name the limit which was reached. Does not depend on LibTorch.
/// Example:  EK_CHECK(fd >= 0, kIo, file.string(), ": cannot be opened: ", os_error_text(errno));
#pragma once

#include <string>
#include <system_error>

#include "base/plain/error.h"

namespace evenkeel {

/// Returns the system's text for `error` (strerror). For an error of a limit, the commands and settings that show or
/// change the limit follow in brackets, e.g. "Too many open files (ulimit -n)".
/// \param error  a value of errno
std::string os_error_text(int error);

/// The message for a thread that could not be started (EAGAIN).
inline constexpr const char* kNoMoreThreads = "no more threads can be started (ulimit -u, pids.max): lower --threads";

/// Returns the message for a process that could not be started by fork(2).
/// \param error  a value of errno
/// \param lower  the flag that lowers the number of processes, e.g. "--ranks"
std::string no_process_text(int error, const char* lower);

/// Returns true if `error` reports that the system started no further thread.
bool is_thread_limit(const std::system_error& error);

/// Returns `error` as an Error of kind kIo. The standard library throws std::system_error when a thread cannot be
/// started.
Error os_error(const std::system_error& error);

}  // namespace evenkeel
