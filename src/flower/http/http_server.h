/// \file  The listening half of HTTP/1.1: connections with deadlines, heads and bodies with bounds, TLS. What is
/// asked is for the handler.
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

namespace evenkeel::wire {

struct HttpRequest {
  std::string method, path;
  std::string peer;  ///< address and port
  std::string content_type, content_encoding;
  std::optional<uint64_t> length{};  ///< of the body, where the head says it
  SignedHeaders signature;
  std::string program;  ///< package and version
  /// The body, once. \throws Refusal when it is longer than `most`, or comes too slowly.
  std::function<std::string(size_t most)> body;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/protobuf";
  std::string body{};
  std::vector<std::span<const std::byte>> pieces{};  ///< after the body, not copied
  std::shared_ptr<const void> owner{};               ///< of the pieces, until they are sent
  std::string reason{};                              ///< kReasonHeader
  bool close = false;                                ///< the connection, after this
};

/// An error as Flower's servers say it.
struct Refusal {
  int status = 400;
  int code = 0;
  std::string detail;
  bool close = false;
};
HttpReply reply_of(const Refusal& refusal);

/// What is known of the server's traffic, from the beginning.
struct HttpCounts {
  std::atomic<uint64_t> connections = 0, requests = 0, bytes_in = 0, bytes_out = 0;
  std::atomic<uint64_t> cut_off = 0;  ///< connections that were too slow, or sent what is no HTTP
};

struct ServerOptions {
  std::string host;
  int port = 0;  ///< 0: any free one
  std::optional<TlsFiles> tls{};
  int threads = 64;
  NodeLimits limits{};
};
/// Called by several threads. Throws Refusal, or Error (which is answered with 500).
using Answering = std::function<HttpReply(const HttpRequest&)>;

class HttpServer {
 public:
  /// Listens from now on. \throws kConfig, kIo
  HttpServer(const ServerOptions& options, Answering answering);
  ~HttpServer();  ///< after the requests that are being answered
  int port() const;
  const HttpCounts& counts() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::wire
