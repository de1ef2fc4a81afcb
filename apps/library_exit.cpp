#include "apps/library_exit.h"

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

void on_exit() {
  if (!reporter) return;  // the program itself ends
  const int code = reporter(reason());
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

LibraryExit::LibraryExit(std::function<int(const Error&)> report) {
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(on_exit); });
  reporter = std::move(report);
}

LibraryExit::~LibraryExit() { reporter = nullptr; }

}  // namespace evenkeel::apps
