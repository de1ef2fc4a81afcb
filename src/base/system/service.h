/// \file  Reports the state of this process to a service manager, in the protocol of sd_notify(3): one datagram to the
/// socket that $NOTIFY_SOCKET names. Nothing is sent unless the variable begins with / or @. Failures are ignored.
/// libsystemd is not needed. Threads: any.
#pragma once

#include <string_view>

namespace evenkeel {

/// Reports that start-up is complete. Later calls do nothing.
void notify_ready();
/// Reports what the process does, as `systemctl status` shows it. Control characters are replaced by spaces.
void notify_status(std::string_view text);
/// Reports to the watchdog that the process is alive. Long work calls it after every step. It sends at most one
/// datagram in a quarter of $WATCHDOG_USEC, the time limit of the watchdog. Without that variable, or if $WATCHDOG_PID
/// names another process, it does nothing.
void notify_alive();
/// Returns interrupt_requested(). Before an interrupt it calls notify_alive(); after an interrupt it reports once that
/// the process is stopping. For use as a StopRequest.
bool alive_or_interrupted();

}  // namespace evenkeel
