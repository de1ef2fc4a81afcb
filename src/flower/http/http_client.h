/// \file  Calls over one connection to a server, which is opened again by itself when it was dropped.
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

namespace evenkeel::wire {

/// Why a coordinator of ours did not store an object, beside an answer that other nodes understand.
inline constexpr std::string_view kReasonHeader = "evenkeel-reason";

/// What came back. Without a status nothing did, and `detail` says why.
struct Answer {
  int status = 0;
  std::string body{};
  std::string detail{};          ///< of an error: what its JSON says, or the transport's word; else kReasonHeader's
  int code = 0;                  ///< of an error, Flower's; 0 where there is none
  std::optional<double> date{};  ///< the server's clock, seconds since 1970

  bool ok() const { return status == 200; }
  /// Worth another try: the transport failed, or the server is not up.
  bool passing() const { return status == 0 || status == 502 || status == 503 || status == 504; }
};

/// For one thread.
class HttpClient {
 public:
  /// \param most  bytes of an answer; more is refused, and ends the connection
  HttpClient(const Endpoint& server, double timeout_s, size_t most);
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  /// Posts the pieces in turn, none of them copied.
  Answer post(std::string_view path, const SignedHeaders& signature, std::string_view head,
              std::span<const std::string_view> pieces = {});
  Answer get(std::string_view path);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::wire
