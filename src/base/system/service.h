/// \file  Reports the state of this process to a service manager, in the protocol of sd_notify(3): one datagram to the
/// socket that $NOTIFY_SOCKET names. Without that variable every function does nothing. libsystemd is not needed.
/// Threads: any.
#pragma once

#include <string_view>

namespace evenkeel {

/// Reports that start-up is complete. The first call counts.
void notify_ready();
/// Reports what the process does, as `systemctl status` shows it. Control characters are replaced by spaces.
void notify_status(std::string_view text);
/// Reports that the process works. Long work calls it after every step. It sends a datagram at most every quarter of
/// the watchdog's time ($WATCHDOG_USEC, of this process as $WATCHDOG_PID says), and none without a watchdog.
void notify_alive();
/// Works as interrupt_requested(), and reports that the process works, or that it stops. For use as a StopRequest.
bool alive_or_interrupted();

}  // namespace evenkeel
