#include "fed/exchange/parallel_exchange.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/plain/os_error.h"

namespace evenkeel::fed {
namespace {

using Result = std::variant<Reply, std::exception_ptr>;

/// The last event of a worker thread.
struct Ended {
  std::thread::id thread;
  Result result;
};

/// An event that a worker thread sends to the caller's thread.
using Event = std::variant<ClientProgress, Ended>;

/// Thrown in a worker thread whose result is no longer needed.
struct Stopped {};

class Events {
 public:
  void push(Event event) {
    {
      const std::scoped_lock lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
  }
  Event wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !events_.empty(); });
    auto event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
};

class ParallelExchange {
 public:
  ParallelExchange(const Exchange& exchange, const std::function<Reply(const Task&, const OnProgress&)>& work)
      : exchange_(exchange), work_(work) {}
  ~ParallelExchange() { stop_ = true; }  // threads are joined after it, as members

  void start(Task task) {
    try {
      std::jthread thread([this, task = std::move(task)] { run(task); });
      const auto id = thread.get_id();
      threads_.emplace(id, std::move(thread));
    } catch (const std::system_error& error) {
      throw os_error(error).with_context(concat("clients.parallel, thread ", running() + 1));
    }
  }
  size_t running() const { return threads_.size(); }
  void handle_event() {
    auto event = events_.wait();
    if (const auto* progress = std::get_if<ClientProgress>(&event)) {
      if (exchange_.on_progress) exchange_.on_progress(*progress);
      return;
    }
    auto& [thread, result] = std::get<Ended>(event);
    threads_.erase(thread);  // joins it; until then its stack stays in memory
    if (auto* reply = std::get_if<Reply>(&result)) return exchange_.on_reply(std::move(*reply));
    std::rethrow_exception(std::get<std::exception_ptr>(result));
  }

 private:
  void run(const Task& task) {
    // LibTorch's number of threads is set per thread: in a new one it is the number of cores, and bits depend on it.
    // This call sets the number that the process has set.
    at::init_num_threads();
    events_.push(Ended{std::this_thread::get_id(), result_of(task)});
  }
  Result result_of(const Task& task) {
    try {
      return work_(task, [this](const ClientProgress& progress) {
        if (stop_) throw Stopped();
        events_.push(progress);
      });
    } catch (...) {
      return std::current_exception();
    }
  }

  const Exchange& exchange_;
  const std::function<Reply(const Task&, const OnProgress&)>& work_;
  Events events_;
  std::atomic<bool> stop_ = false;
  std::map<std::thread::id, std::jthread> threads_;  // by id, those that were not joined yet
};

}  // namespace

void exchange_in_parallel(std::span<const methods::ClientProfile> clients, const Exchange& exchange, size_t threads,
                          const std::function<Reply(const Task&, const OnProgress&)>& work) {
  ParallelExchange parallel(exchange, work);
  for (size_t next = 0; next < clients.size() || parallel.running() > 0;) {
    while (next < clients.size() && parallel.running() < threads) parallel.start(exchange.task_of(clients[next++]));
    parallel.handle_event();
  }
}

}  // namespace evenkeel::fed
