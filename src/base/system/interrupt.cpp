#include "base/system/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace evenkeel {
namespace {

volatile std::sig_atomic_t requested = 0, asked_before = 0;

void on_signal(int signal) {
  requested = 1;
  if (signal == SIGHUP) return;
  if (asked_before != 0) _exit(130);
  asked_before = 1;
}

}  // namespace

void handle_stop_signals(void (*handler)(int signal)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

void watch_interrupts() { handle_stop_signals(on_signal); }

bool interrupt_requested() { return requested != 0; }

}  // namespace evenkeel
