/// \file  Defines the address of a server and how a client verifies it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace evenkeel::flower {

/// Holds a server's address and the means to verify the server.
struct Endpoint {
  std::string host = "127.0.0.1";
  int port = 8000;
  /// PEM of the authority that signed the server's certificate. It enables TLS. Without it traffic is not encrypted,
  /// and `insecure` must be true. Use this only on a private network.
  std::optional<std::filesystem::path> ca_file{};
  bool insecure = false;

  std::string text() const;  ///< "https://host:port", or "http://..." without ca_file
};

}  // namespace evenkeel::flower
