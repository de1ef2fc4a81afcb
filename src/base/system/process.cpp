#include "base/system/process.h"

#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/system/device.h"

namespace evenkeel {
namespace {

void keep_freed_memory() {
#if defined(__GLIBC__)
  ::mallopt(M_MMAP_THRESHOLD, INT_MAX);
  ::mallopt(M_TRIM_THRESHOLD, -1);  // freed memory is never returned automatically
#endif
}

void let_waiting_threads_sleep(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  const bool single_threaded = threads != nullptr && std::string_view(threads) == "1";
  if (single_threaded || std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  std::error_code error;
  // Executing the link itself would rename the process to exe.
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(program.c_str(), argv);  // if it fails, waiting threads spin
}

}  // namespace

void settle_process(char** argv) {
  settle_device_environment();
  let_waiting_threads_sleep(argv);
  keep_freed_memory();
}

void give_back_freed_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

}  // namespace evenkeel
