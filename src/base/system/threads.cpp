#include "base/system/threads.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

/// Starts `count` threads that exist at the same time, and ends them.
void try_threads(int64_t count) {
  std::latch end(1);
  std::vector<std::jthread> threads;
  try {
    for (int64_t i = 0; i < count; ++i) threads.emplace_back([&end] { end.wait(); });
  } catch (const std::system_error& error) {
    end.count_down();
    throw os_error(error);
  }
  end.count_down();
}

std::atomic<int64_t> tried = 1;  // threads that the system has started, with the main thread

}  // namespace

void use_pool_threads(int64_t threads) {
  if (const int64_t more = threads - tried; more > 0) {
    try_threads(more);
    tried = threads;
  }
  at::set_num_threads(static_cast<int>(threads));
}

}  // namespace evenkeel
