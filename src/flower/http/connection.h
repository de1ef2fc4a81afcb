/// \file  Handles one accepted connection, plain or TLS. Every wait has a deadline.
#pragma once

#include <openssl/ssl.h>
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "flower/http/server_limits.h"

namespace evenkeel::flower {

/// A non-blocking socket with deadlines. For one thread.
class Connection {
 public:
  /// \param socket       owned
  /// \param tls          borrowed until the constructor returns (OpenSSL counts references); null: no TLS
  /// \param has_waiters  returns true if other connections wait for a thread. Then a peer that sends no request for a
  ///                     second is cut off, and the destructor does not wait.
  Connection(int socket, SSL_CTX* tls, const NodeLimits& limits, std::function<bool()> has_waiters);
  ~Connection();  ///< waits up to 0.5 s for the peer to read the answer, then closes
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Does the TLS handshake if it is still needed. Returns false when it failed.
  bool open();
  /// Waits up to `patience` for data, and then starts the deadline of a request's head. Returns false if nothing
  /// arrived. At the end of the connection it returns true, and the next read() returns 0.
  bool next_request(std::chrono::milliseconds patience);
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

  /// Returns true if reading failed because of a deadline.
  bool too_slow() const { return too_slow_; }
  uint64_t bytes_in() const { return bytes_in_; }
  uint64_t bytes_out() const { return bytes_out_; }
  int socket() const { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  ssize_t fill();
  bool wait(short events, Clock::time_point deadline);
  bool wait_for_tls(int result, Clock::time_point deadline);
  Clock::time_point deadline() const;

  int socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  const NodeLimits limits_;
  const std::function<bool()> has_waiters_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool in_head_ = true, too_slow_ = false, lingers_ = true;
  uint64_t phase_bytes_ = 0, bytes_in_ = 0, bytes_out_ = 0;
  Clock::time_point phase_begin_ = Clock::now(), progress_at_ = phase_begin_;
};

}  // namespace evenkeel::flower
