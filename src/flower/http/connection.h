/// \file  Handles one accepted connection, plain or TLS. Every wait has a deadline.
#pragma once

#include <openssl/ssl.h>
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flower/http/server_limits.h"

namespace evenkeel::flower {

/// A non-blocking socket with deadlines. For one thread.
class Connection {
 public:
  /// \param socket       owned
  /// \param tls          borrowed until the constructor returns (OpenSSL counts references); null: no TLS
  /// \param has_waiters  returns true if other connections wait for a thread. Then limits.bytes_per_s applies after
  ///                     three seconds instead of ten, and the destructor does not wait.
  Connection(int socket, SSL_CTX* tls, const NodeLimits& limits, std::function<bool()> has_waiters);
  ~Connection();  ///< waits up to 0.5 s for the peer to read the answer, then closes
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// How far the head of the next request has arrived.
  enum class Head {
    kNothing,  ///< no byte has arrived
    kPart,     ///< a part of the head, or of the TLS handshake
    kWhole,    ///< the head is complete, longer than 32 KiB, or cut off by the peer: read() will not wait
    kClosed,   ///< the peer has closed the connection, or the handshake failed
  };
  /// Continues the TLS handshake if it is not done, then buffers the part of a head that has arrived. Does not wait.
  Head take_head();
  /// Waits up to `patience` for data. Returns false if nothing arrived.
  bool has_data(std::chrono::milliseconds patience) const;
  /// Frees the buffer while the connection is idle.
  void on_idle();
  /// Makes the destructor close without waiting for the peer.
  void close_at_once() { lingers_ = false; }
  /// Starts the deadlines of body and answer.
  void head_is_read() { phase_begin_ = progress_at_ = Clock::now(), in_head_ = false, phase_bytes_ = 0; }

  /// Reads up to `size` bytes. Returns their number, 0 at the end, -1 on an error, past a deadline, or beyond 32 KiB of
  /// a request's head.
  ssize_t read(char* data, size_t size);
  /// Writes all bytes. Returns their number, or -1 on an error or past a deadline.
  ssize_t write(const char* data, size_t size);

  /// Makes write() fail soon after `unwanted` returns true. It is asked several times a second; empty: never.
  void stop_when(std::function<bool()> unwanted) { unwanted_ = std::move(unwanted); }

  /// Returns true if reading failed because of a deadline.
  bool too_slow() const { return too_slow_; }
  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }
  /// Returns true if the TLS handshake is done, or there is no TLS.
  bool handshake_done() const { return !ssl_ || SSL_is_init_finished(ssl_.get()) != 0; }
  int socket() const { return socket_; }
  /// A peer is known once a call that it signed has been answered.
  void set_known() { known_ = true; }
  bool known() const { return known_; }
  /// Returns when the first byte of an unfinished head arrived, as set by IdleConnections; nothing between requests.
  std::optional<std::chrono::steady_clock::time_point> head_began() const { return head_began_; }
  void head_begins_at(std::optional<std::chrono::steady_clock::time_point> when) { head_began_ = when; }

 private:
  using Clock = std::chrono::steady_clock;
  ssize_t receive(size_t at);
  ssize_t fill();
  bool has_whole_head() const;
  bool wait(short events, Clock::time_point deadline) const;
  Clock::time_point deadline_in_the_way() const;
  bool wait_for_tls(int result, Clock::time_point deadline) const;
  Clock::time_point deadline() const;
  bool stops() const { return unwanted_ && unwanted_(); }

  int socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  const NodeLimits limits_;
  const std::function<bool()> has_waiters_;
  std::function<bool()> unwanted_{};  // see stop_when()
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool in_head_ = true, too_slow_ = false, lingers_ = true, known_ = false;
  std::optional<Clock::time_point> head_began_{};
  uint64_t phase_bytes_ = 0, bytes_in_ = 0, bytes_out_ = 0;
  Clock::time_point phase_begin_ = Clock::now(), progress_at_ = phase_begin_;
};

}  // namespace evenkeel::flower
