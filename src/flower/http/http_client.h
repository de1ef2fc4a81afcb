/// \file  Sends HTTP calls over one connection, which is reopened when the server has dropped it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/keys.h"
#include "flower/http/endpoint.h"

namespace evenkeel::flower {

/// The header in which evenkeel's coordinator gives the reason why it did not store an object or take a reply. The body
/// of the answer follows Flower's protocol.
inline constexpr std::string_view kReasonHeader = "evenkeel-reason";

/// The header with the SHA-256 of a body, 64 hex digits. Without TLS, evenkeel's nodes and coordinator send it with
/// every body that has no pieces, in both directions, so that damage on the way is noticed. Objects, which have pieces,
/// are checked by their ids. Other programs do not send it.
inline constexpr std::string_view kDigestHeader = "evenkeel-body-sha256";

/// The answer to a call. Status 0 means that no answer arrived; `detail` has the reason.
struct Answer {
  int status = 0;
  std::string body{};
  std::string detail{};  ///< the error's text: from its JSON, from the transport, or with status 200 from kReasonHeader
  int code = 0;          ///< Flower's code of an error; 0: none
  std::optional<double> date{};  ///< the server's clock (Date), seconds since 1970
  bool needs_tls = false;        ///< no answer arrived, because the server speaks TLS and this client does not

  bool ok() const { return status == 200; }
  /// Returns true if the error is temporary, so that the call may be retried: the transport failed (0), bytes of the
  /// call were lost or late on the way (408), or the server is not available (502, 503, 504).
  bool passing() const { return status == 0 || status == 408 || status == 502 || status == 503 || status == 504; }
};

/// Calls one server. For one thread. post() and get() do not throw for a failed call: Answer::status says what
/// happened.
class HttpClient {
 public:
  /// \param timeout_s  seconds for connecting, reading and writing
  /// \param most       largest body of an answer in bytes; a larger one fails the call
  /// \throws kConfig for an invalid address, or an authority's file without certificates
  HttpClient(const Endpoint& server, double timeout_s, size_t most);
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  /// Posts a protobuf body: `head`, then `pieces`, none of them copied. They are borrowed until this returns.
  Answer post(std::string_view path, const SignedHeaders& signature, std::string_view head,
              std::span<const std::string_view> pieces = {});
  /// Gets a page, unsigned.
  Answer get(std::string_view path);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::flower
