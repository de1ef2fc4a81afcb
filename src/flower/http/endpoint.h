/// \file  The address of a server, and how a client verifies it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace evenkeel::wire {

/// Where the server is, and how it is known to be the right one.
struct Endpoint {
  std::string host = "127.0.0.1";
  int port = 8000;
  /// PEM of the authority that signed the server's certificate: TLS. Without it everything travels in the clear, which
  /// is for a network of one's own: `insecure` has to say so.
  std::optional<std::filesystem::path> ca_file{};
  bool insecure = false;

  std::string text() const;  ///< "https://host:port"
};

}  // namespace evenkeel::wire
