/// \file  Ctrl-C (SIGINT) and SIGTERM, politely: the first asks the work to stop at its next safe place, the second
/// ends the process at once.
#pragma once

#include <functional>

#include "base/plain/error.h"

namespace evenkeel {

/// Installs the handlers. Call once, before long work; later calls change nothing.
void watch_interrupts();

/// True from the first signal on. Cheap enough to ask after every step. For a program to hand to what it runs.
bool interrupt_requested();

/// How long work learns that it should stop: asked often, at safe places. Empty: never.
using StopRequest = std::function<bool()>;

/// Thrown at a safe place after the state was saved; `what()` is the line that tells how to go on. Exit code 130.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(std::string how_to_resume) : text_(std::move(how_to_resume)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace evenkeel
