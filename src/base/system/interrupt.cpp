#include "base/system/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace evenkeel {
namespace {

volatile std::sig_atomic_t requested = 0;

void on_signal(int /*signal*/) {
  if (requested != 0) _exit(130);
  requested = 1;
}

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool interrupt_requested() { return requested != 0; }

}  // namespace evenkeel
