/// \file  One thing done after another beside the thread that asks for it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace evenkeel {

/// A thread that does what it is given, in order, with as many of the pool's threads as `threads` says. At most one
/// thing waits while another is being done: who gives more waits. Threads: one gives.
class Background {
 public:
  Background() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  /// Does what it was given; an error that nobody heard of is lost.
  ~Background() {
    {
      const std::scoped_lock lock(mutex_);  // or the thread could miss it between its look and its sleep
      thread_.request_stop();
    }
    changed_.notify_all();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Returns when it is next in line. \throws what an earlier one failed with, once.
  void give(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !next_; });
    rethrow();
    next_ = std::move(work);
    changed_.notify_all();
  }
  /// Returns when all is done. \throws as above.
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !next_ && !busy_; });
    rethrow();
  }

 private:
  void rethrow() {
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> next_{};
  std::exception_ptr failed_{};
  bool busy_ = false;
  std::jthread thread_;
};

}  // namespace evenkeel
