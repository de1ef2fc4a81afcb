#include "flower/http/idle_connections.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/plain/clock.h"
#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel::flower {
namespace {

constexpr int kLookMs = 500;  // interval of dropping expired connections
constexpr int kAtOnce = 64;

size_t files_allowed() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur) : 1024;
}

}  // namespace

IdleConnections::IdleConnections(const IdleLimits& limits, Ready ready, std::function<void()> cut_off)
    : idle_(steady_duration(limits.idle_s)),
      head_(steady_duration(limits.head_s)),
      most_(std::min(limits.most, files_allowed() / 2)),
      most_unfinished_(std::min(limits.most_unfinished, files_allowed() / 4)),
      ready_(std::move(ready)),
      cut_off_(std::move(cut_off)),
      poll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_}};
  EK_CHECK(poll_ >= 0 && wake_ >= 0 && ::epoll_ctl(poll_, EPOLL_CTL_ADD, wake_, &event) == 0, kIo,
           "connections cannot be waited for: ", os_error_text(errno));
  thread_ = std::jthread([this] { watch(); });
}

IdleConnections::~IdleConnections() {
  close();
  ::close(poll_);
  ::close(wake_);
}

void IdleConnections::add(std::shared_ptr<Connection> connection) {
  connection->on_idle();
  connection->head_begins_at({});
  const std::lock_guard lock(mutex_);
  put(queue_, std::move(connection), Clock::now() + idle_);
  if (queue_.size() > most_) drop(queue_, first_to_go(queue_));
}

size_t IdleConnections::add_unfinished(std::shared_ptr<Connection> connection) {
  if (!connection->head_began()) connection->head_begins_at(Clock::now());
  const auto until = *connection->head_began() + head_;
  const std::lock_guard lock(mutex_);
  put(unfinished_, std::move(connection), until);
  if (unfinished_.size() > most_unfinished_) {
    drop(unfinished_, first_to_go(unfinished_));
    cut_off_();
  }
  return unfinished_.size();
}

/// Adds a connection to a queue and watches it. The caller holds the lock.
void IdleConnections::put(Queue& queue, std::shared_ptr<Connection> connection, Clock::time_point until) {
  if (closed_) return connection->close_at_once();
  const int socket = connection->socket();
  auto at = queue.end();  // connections that come back have less time left than those before them
  while (at != queue.begin() && std::prev(at)->until > until) --at;
  at = queue.insert(at, {std::move(connection), until});
  by_socket_[socket] = {&queue, at};
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data = {.fd = socket}};
  if (::epoll_ctl(poll_, EPOLL_CTL_ADD, socket, &event) != 0) take(socket)->close_at_once();
}

void IdleConnections::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
  for (auto* queue : {&queue_, &unfinished_})
    while (!queue->empty()) drop(*queue, queue->begin());
}

void IdleConnections::watch() {
  std::array<epoll_event, kAtOnce> events{};
  while (true) {
    const int count = ::epoll_wait(poll_, events.data(), kAtOnce, kLookMs);
    for (int i = 0; i < count; ++i) {
      std::unique_lock lock(mutex_);
      if (closed_) return;
      auto connection = take(events[static_cast<size_t>(i)].data.fd);
      lock.unlock();
      if (connection) ready_(std::move(connection));
    }
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    drop_expired();
  }
}

/// Returns null if the connection was dropped in the meantime.
std::shared_ptr<Connection> IdleConnections::take(int socket) {
  const auto found = by_socket_.find(socket);
  if (found == by_socket_.end()) return nullptr;
  auto connection = std::move(found->second.at->connection);
  found->second.queue->erase(found->second.at);
  by_socket_.erase(found);
  ::epoll_ctl(poll_, EPOLL_CTL_DEL, socket, nullptr);
  return connection;
}

void IdleConnections::drop(Queue& queue, Queue::iterator which) {
  if (which != queue.end()) take(which->connection->socket())->close_at_once();
}

/// Returns the connection to be closed first: the oldest of a peer that is not known, else the oldest.
IdleConnections::Queue::iterator IdleConnections::first_to_go(Queue& queue) {
  const auto stranger =
      std::find_if(queue.begin(), queue.end(), [](const Waiting& one) { return !one.connection->known(); });
  return stranger != queue.end() ? stranger : queue.begin();
}

void IdleConnections::drop_expired() {
  const auto now = Clock::now();
  while (!queue_.empty() && queue_.front().until <= now) drop(queue_, queue_.begin());
  for (; !unfinished_.empty() && unfinished_.front().until <= now; cut_off_()) drop(unfinished_, unfinished_.begin());
}

void IdleConnections::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

}  // namespace evenkeel::flower
