#include "flower/http/idle_connections.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

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

IdleConnections::IdleConnections(double idle_s, size_t most, Ready ready)
    : idle_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(idle_s))),
      most_(std::min(most, files_allowed() / 2)),
      ready_(std::move(ready)),
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
  const std::lock_guard lock(mutex_);
  if (closed_) return connection->close_at_once();
  const int socket = connection->socket();
  queue_.push_back({std::move(connection), Clock::now() + idle_});
  by_socket_[socket] = std::prev(queue_.end());
  if (queue_.size() > most_) drop_front();
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
  while (!queue_.empty()) drop_front();
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
  auto connection = std::move(found->second->connection);
  queue_.erase(found->second);
  by_socket_.erase(found);
  ::epoll_ctl(poll_, EPOLL_CTL_DEL, socket, nullptr);
  return connection;
}

void IdleConnections::drop_front() { take(queue_.front().connection->socket())->close_at_once(); }

void IdleConnections::drop_expired() {
  const auto now = Clock::now();
  while (!queue_.empty() && queue_.front().until <= now) drop_front();
}

void IdleConnections::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

}  // namespace evenkeel::flower
