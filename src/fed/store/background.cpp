#include "fed/store/background.h"

#include <ATen/Parallel.h>

namespace evenkeel::fed {

void Background::run(const std::stop_token& stop) {
  at::init_num_threads();  // a new thread starts with as many threads as there are cores
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return next_ || stop.stop_requested(); });
    if (!next_) return;
    const auto work = std::exchange(next_, nullptr);
    busy_ = true;
    changed_.notify_all();
    lock.unlock();
    std::exception_ptr failed;
    try {
      work();
    } catch (...) {
      failed = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (failed && !failed_) failed_ = failed;
    changed_.notify_all();
  }
}

}  // namespace evenkeel::fed
