#include "apps/library_exit.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/plain/os_error.h"

namespace evenkeel::apps {
namespace {

std::function<int(const Error&)> reporter;

/// Finds out why a library ended the program.
Error reason() try {
  std::thread([] {}).join();
  return Error(kIo, "a library ended the program, for the reason above");
} catch (const std::system_error& error) {
  return os_error(error);
}

/// Threads that may call exit() at a time. Each runs a copy of on_exit(), because none may run what comes after it,
/// the destructors of objects that other threads use.
constexpr int kMostThreads = 256;

void on_exit() {
  static std::atomic_flag reported;
  if (!reporter) return;  // the program itself ends
  while (reported.test_and_set()) ::pause();
  const int code = reporter(reason());
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

LibraryExit::LibraryExit(std::function<int(const Error&)> report) {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int i = 0; i < kMostThreads; ++i) std::atexit(on_exit);
  });
  reporter = std::move(report);
}

LibraryExit::~LibraryExit() { reporter = nullptr; }

}  // namespace evenkeel::apps
