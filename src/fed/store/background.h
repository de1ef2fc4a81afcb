/// \file  Runs jobs in order in a background thread.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace evenkeel::fed {

/// A background thread that runs jobs in order. At most one job waits while another runs, so give() blocks when a job
/// is already waiting. A job uses as many threads of the pool as the config allows. Threads: one thread calls give()
/// and finish().
class Background {
 public:
  Background() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  /// Runs the jobs that were given, then joins. An error that was not rethrown is dropped.
  ~Background() {
    {
      const std::scoped_lock lock(mutex_);  // else the thread could miss the request between its test and its wait
      thread_.request_stop();
    }
    changed_.notify_all();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// Queues a job. Waits first while another job is queued. \throws the error of an earlier job, once
  void give(std::function<void()> work) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !next_; });
    rethrow();
    next_ = std::move(work);
    changed_.notify_all();
  }
  /// Returns when all jobs are done. \throws the error of a job, once
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

}  // namespace evenkeel::fed
