/// \file  Implements an HTTP client without TLS that recognises a server with TLS.
#pragma once

#include <httplib.h>

#include <functional>
#include <string>

namespace evenkeel::flower {

/// An HTTP client without TLS. A server with TLS answers its requests with an alert or not at all. For one thread.
class PlainClient : public httplib::ClientImpl {
 public:
  using ClientImpl::ClientImpl;

  /// Returns true if the server speaks TLS: the answer to the last request was a TLS record, or the server answers the
  /// beginning of a TLS handshake with one. The second test opens a connection, with up to 3 s for each step. Call it
  /// after a request that failed.
  bool server_speaks_tls() const;

 private:
  bool process_socket(const Socket& socket, std::function<bool(httplib::Stream&)> callback) override;

  std::string first_bytes_;  ///< of the answer to the last request
};

/// Returns true if the bytes that a server sent first begin a TLS record: an alert or a handshake message.
bool is_tls_record(std::string_view bytes);

}  // namespace evenkeel::flower
