/// \file  Handles Ctrl-C (SIGINT), SIGTERM, and SIGHUP (a lost terminal), which stays ignored where it is (nohup). The
/// first signal sets a flag, and the work stops at the next point at which its state can be saved. The second signal
/// ends the process at once with exit code 130.
#pragma once

#include <functional>

#include "base/plain/error.h"

namespace evenkeel {

/// Installs the signal handlers. Call it once, before long work.
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
