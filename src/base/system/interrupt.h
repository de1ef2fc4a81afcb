/// \file  Handles Ctrl-C (SIGINT), SIGTERM, and SIGHUP (a lost terminal), which stays ignored where it is (nohup). The
/// first signal sets a flag, and the work stops at the next point at which its state can be saved. The second SIGINT or
/// SIGTERM ends the process at once with exit code 130. SIGHUP never does and does not count as the first of them: of a
/// lost terminal the shell and the kernel each send one, and systemd may send SIGTERM as well.
#pragma once

#include <functional>

#include "base/plain/error.h"

namespace evenkeel {

/// Installs `handler`, in place of an earlier one, for SIGINT, for SIGTERM, and for SIGHUP unless that is ignored. It
/// runs in any thread, and may call async-signal-safe functions only.
void handle_stop_signals(void (*handler)(int signal));

/// Installs the signal handlers that set the flag. Call it once, before long work.
void watch_interrupts();

/// Returns true after the first signal. It is cheap enough to call after every step.
bool interrupt_requested();

/// Returns true when work should stop. Long work calls it whenever its state can be saved. An empty function means that
/// the work never stops early.
using StopRequest = std::function<bool()>;

/// Ends interrupted work. Inner functions throw it with the place at which they stopped. The outermost throws it after
/// the state was saved, and what() is then the line that explains how to resume. The program exits with code 130.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(std::string how_to_resume) : text_(std::move(how_to_resume)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace evenkeel
