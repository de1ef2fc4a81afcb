#include "flower/http/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/plain/clock.h"

namespace evenkeel::flower {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBuffer = size_t{64} << 10, kLongestHead = size_t{32} << 10;
constexpr size_t kPiece = size_t{4} << 10;  // bytes by which the buffer of a head grows
constexpr auto kStep = 100ms;               // interval of checking whether other connections wait for a thread
constexpr double kBodyGrace = 10;           // seconds before the minimum rate of a body applies
constexpr auto kGraceInTheWay = 3s;         // the same, while other connections wait for a thread
constexpr ssize_t kNothingYet = -1, kBroken = -2;

}  // namespace

Connection::Connection(int socket, SSL_CTX* tls, const NodeLimits& limits, std::function<bool()> has_waiters)
    : socket_(socket), ssl_(nullptr, &SSL_free), limits_(limits), has_waiters_(std::move(has_waiters)) {
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!tls) return;
  ssl_.reset(SSL_new(tls));
  SSL_set_fd(ssl_.get(), socket_);
}

Connection::~Connection() {
  if (ssl_ && SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  // Unread bytes are drained before closing; otherwise the peer would get a reset before it has read its answer.
  ::shutdown(socket_, SHUT_WR);
  std::array<char, 16384> rest{};
  const auto deadline = Clock::now() + 500ms;
  for (int i = 0; i < 256 && lingers_ && !has_waiters_() && wait(POLLIN, deadline); ++i)
    if (::recv(socket_, rest.data(), rest.size(), 0) <= 0) break;
  ::close(socket_);
}

/// Returns when a body or an answer is in the way of other connections: its rate counts after a short time.
Connection::Clock::time_point Connection::deadline_in_the_way() const {
  if (in_head_ || !has_waiters_()) return Clock::time_point::max();
  return phase_begin_ + kGraceInTheWay + steady_duration(static_cast<double>(phase_bytes_) / limits_.bytes_per_s);
}

bool Connection::wait(short events, Clock::time_point deadline) const {
  while (true) {
    const auto now = Clock::now();
    if (now >= deadline || now >= deadline_in_the_way() || stops()) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    pollfd descriptor{.fd = socket_, .events = events, .revents = 0};
    const int ready =
        ::poll(&descriptor, 1, static_cast<int>(std::min<std::chrono::milliseconds>(left, kStep).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::wait_for_tls(int result, Clock::time_point deadline) const {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return wait(POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE:
      return wait(POLLOUT, deadline);
    default:
      return false;
  }
}

/// Receives what has arrived to buffer_[at...]. \return the number of bytes; 0 at the end; kNothingYet or kBroken
ssize_t Connection::receive(size_t at) {
  if (!ssl_) {
    const ssize_t got = ::recv(socket_, buffer_.data() + at, buffer_.size() - at, 0);
    return got >= 0 ? got : (errno == EAGAIN || errno == EINTR ? kNothingYet : kBroken);
  }
  ERR_clear_error();
  const int result = SSL_read(ssl_.get(), buffer_.data() + at, static_cast<int>(buffer_.size() - at));
  if (result > 0) return result;
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? kNothingYet : kBroken;
}

bool Connection::has_whole_head() const {
  const std::string_view head(buffer_.data() + begin_, end_ - begin_);
  return head.size() > kLongestHead || head.find("\r\n\r\n") != std::string_view::npos;
}

Connection::Head Connection::take_head() {
  in_head_ = true;
  phase_begin_ = Clock::now();
  phase_bytes_ = 0;
  if (!handshake_done()) {
    ERR_clear_error();
    const int result = SSL_accept(ssl_.get());
    const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return Head::kPart;
    if (result != 1) return Head::kClosed;
  }
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  while (!has_whole_head()) {
    buffer_.resize(std::max(buffer_.size(), end_ + kPiece));
    const ssize_t got = receive(end_);
    if (got == kNothingYet) return end_ > 0 ? Head::kPart : Head::kNothing;
    if (got <= 0) return got == 0 && end_ > 0 ? Head::kWhole : Head::kClosed;
    end_ += static_cast<size_t>(got);
  }
  return Head::kWhole;
}

bool Connection::has_data(std::chrono::milliseconds patience) const {
  pollfd descriptor{.fd = socket_, .events = POLLIN, .revents = 0};
  return begin_ != end_ || (ssl_ && SSL_pending(ssl_.get()) > 0) ||
         ::poll(&descriptor, 1, static_cast<int>(patience.count())) > 0;
}

void Connection::on_idle() {
  if (begin_ != end_) return;
  buffer_ = {};
  begin_ = end_ = 0;
}

/// Returns when the current phase must be over. A request's head has a fixed time; bodies and answers have a minimum
/// rate.
Connection::Clock::time_point Connection::deadline() const {
  if (in_head_) return phase_begin_ + steady_duration(limits_.head_s);
  const auto pace = steady_duration(kBodyGrace + static_cast<double>(phase_bytes_) / limits_.bytes_per_s);
  return std::min(phase_begin_ + pace, progress_at_ + steady_duration(limits_.silence_s));
}

ssize_t Connection::fill() {
  buffer_.resize(kBuffer);
  ssize_t got = receive(0);
  while (got == kNothingYet && wait(POLLIN, deadline())) got = receive(0);
  if (got == 0) return 0;
  if (got < 0) {
    too_slow_ = too_slow_ || Clock::now() >= std::min(deadline(), deadline_in_the_way());
    return -1;
  }
  progress_at_ = Clock::now();
  begin_ = 0;
  end_ = static_cast<size_t>(got);
  return got;
}

ssize_t Connection::read(char* data, size_t size) {
  if (in_head_ && phase_bytes_ > kLongestHead) return -1;
  if (Clock::now() >= deadline()) {
    too_slow_ = true;
    return -1;
  }
  if (begin_ == end_)
    if (const ssize_t got = fill(); got <= 0) return got;
  const size_t taken = std::min(size, end_ - begin_);
  std::memcpy(data, buffer_.data() + begin_, taken);
  begin_ += taken;
  phase_bytes_ += taken;
  bytes_in_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t Connection::write(const char* data, size_t size) {
  if (in_head_) head_is_read();  // invalid requests are answered as well
  progress_at_ = Clock::now();
  size_t done = 0;
  while (done < size) {
    if (stops()) return -1;
    ssize_t sent = 0;
    if (ssl_) {
      ERR_clear_error();
      const int result = SSL_write(ssl_.get(), data + done, static_cast<int>(std::min(size - done, size_t{1} << 20)));
      if (result <= 0 && !wait_for_tls(result, deadline())) return -1;
      sent = std::max(result, 0);
    } else {
      sent = ::send(socket_, data + done, size - done, MSG_NOSIGNAL);
      if (sent < 0) {
        if ((errno != EAGAIN && errno != EINTR) || !wait(POLLOUT, deadline())) return -1;
        sent = 0;
      }
    }
    if (sent > 0) progress_at_ = Clock::now();
    done += static_cast<size_t>(sent);
    phase_bytes_ += static_cast<uint64_t>(sent);
    bytes_out_ += static_cast<uint64_t>(sent);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace evenkeel::flower
