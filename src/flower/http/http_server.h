/// \file  Implements an HTTP/1.1 server with TLS, deadlines for connections and limits for heads and bodies. A handler
/// answers the requests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/keys.h"
#include "flower/http/server_limits.h"

namespace evenkeel::flower {

/// A request whose head has been read.
struct HttpRequest {
  std::string method, path;
  std::string peer;  ///< address and port of the peer
  std::string content_type, content_encoding;
  std::optional<uint64_t> length{};  ///< bytes of the body, if the head has Content-Length
  SignedHeaders signature;
  std::string program;  ///< package and version of the caller
  /// Reads the body; may be called once. \throws Refusal when it is longer than `most` bytes, too slow, cut off or
  /// damaged
  std::function<std::string(size_t most)> body;
};

/// The answer to a request.
struct HttpReply {
  int status = 200;
  std::string type = "application/protobuf";
  std::string body{};
  std::vector<std::span<const std::byte>> pieces{};  ///< sent after the body, borrowed
  std::shared_ptr<const void> owner{};               ///< keeps the pieces alive until they are sent
  /// Returns true when the rest of the answer need not be sent; it is asked while pieces are sent, and the connection
  /// is closed then. Empty: the answer is sent whole.
  std::function<bool()> unwanted{};
  std::string reason{};  ///< header kReasonHeader (flower/http/http_client.h); empty: none
  bool close = false;    ///< true: close the connection afterwards
};

/// An error answer in the form of Flower's servers: HTTP status, Flower's code (0: none), text. Thrown by handlers.
struct Refusal {
  int status = 400;
  int code = 0;
  std::string detail;
  bool close = false;  ///< as HttpReply::close
};
HttpReply reply_of(const Refusal& refusal);

/// Counts the server's traffic since its start.
struct HttpCounts {
  std::atomic<uint64_t> connections = 0, requests = 0, bytes_in = 0, bytes_out = 0;
  std::atomic<uint64_t> cut_off = 0;  ///< connections that were too slow, or sent invalid HTTP
};

/// Options of HttpServer.
struct ServerOptions {
  std::string host;
  int port = 0;  ///< port to listen on; 0: any free port
  std::optional<TlsFiles> tls{};
  int threads = 64;  ///< threads that serve connections
  NodeLimits limits{};
};
/// The handler of requests. Several threads call it. It may throw Refusal; any other exception is answered with 500.
using Answering = std::function<HttpReply(const HttpRequest&)>;

/// A server that listens from construction to destruction. Any thread may call its functions.
class HttpServer {
 public:
  /// Starts listening. \throws kConfig for invalid TLS files, kIo when the address cannot be used
  HttpServer(const ServerOptions& options, Answering answering);
  ~HttpServer();  ///< waits for the requests that are being answered
  int port() const;
  const HttpCounts& counts() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::flower
