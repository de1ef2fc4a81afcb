#include "apps/library_exit.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

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

/// Ends the process without destructors of objects that other threads use. Several threads often fail together: what
/// the library prints in the others comes first, so that the report is the last line.
[[noreturn]] void report_and_end() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int code = reporter(reason());
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

LibraryExit::LibraryExit(std::function<int(const Error&)> report) { reporter = std::move(report); }

LibraryExit::~LibraryExit() { reporter = nullptr; }

}  // namespace evenkeel::apps

/// Takes the place of the C library's exit() for all libraries of the process (apps/CMakeLists.txt exports it). Several
/// threads may call it at once, which is not safe with that of glibc before 2.41.
extern "C" __attribute__((noreturn, used)) void exit(int code) noexcept {
  static std::atomic_flag called;
  while (called.test_and_set()) ::pause();  // another thread ends the process
  if (evenkeel::apps::reporter) evenkeel::apps::report_and_end();
  reinterpret_cast<void (*)(int)>(::dlsym(RTLD_NEXT, "exit"))(code);
  std::abort();
}
