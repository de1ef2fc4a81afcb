/// \file  One accepted connection, plain or TLS, every wait of which has an end.
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

namespace evenkeel::wire {

/// For one thread.
class Connection {
 public:
  /// \param tls  null for plain. \param has_waiters  whether others wait for this thread
  Connection(int socket, SSL_CTX* tls, const NodeLimits& limits, std::function<bool()> has_waiters);
  ~Connection();  ///< lets the peer read what was sent before the socket is closed
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The TLS handshake, if there is to be one and was none.
  bool open();
  /// Whether something of a request (or the connection's end) is there, or comes within `patience`. A request begins.
  bool next_request(std::chrono::milliseconds patience);
  /// Nothing is expected for a while: gives memory back.
  void on_idle();
  /// No more is said or heard: its destruction does not wait for the peer.
  void close_at_once() { lingers_ = false; }
  /// From now on a body is read and answered.
  void head_is_read() { phase_begin_ = progress_at_ = Clock::now(), in_head_ = false, phase_bytes_ = 0; }

  /// -1 on an error or past a deadline, 0 at the end.
  ssize_t read(char* data, size_t size);
  ssize_t write(const char* data, size_t size);

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

}  // namespace evenkeel::wire
