/// \file  Parses and prints network addresses: HOST:PORT. Every address of the project goes through it. Does not depend
/// on LibTorch.
/// Example:  const Address address = parse_address("[::1]:8000", "cluster.store");  address.host == "::1"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel {

/// The scheme before an address.
enum class Scheme { kNone, kHttp, kHttps };

/// A host and a port.
struct Address {
  std::string host;               ///< a name, an IPv4 address, or an IPv6 address without brackets
  uint16_t port = 0;              ///< 0: any free port
  Scheme scheme = Scheme::kNone;  ///< set by parse_server_address() only

  /// Returns "host:8000", for an IPv6 address "[::1]:8000". The scheme is left out.
  std::string text() const;
};

/// Returns "host:8000", for an IPv6 address "[::1]:8000".
std::string address_text(std::string_view host, int port);

/// Parses "host:8000", "10.0.0.1:8000" or "[::1]:8000".
/// \param who    flag, key or variable that the text came from, for the message
/// \param least  lowest port allowed; 0 if any free port will do
/// \throws kConfig naming `who` for everything else: a scheme ("http://"), a user ("me@"), a path, an IPv6 address
/// without brackets, and a port that is missing or not a number from `least` to 65535
Address parse_address(std::string_view text, std::string_view who, int least = 1);

/// Parses the address of an HTTP server: as parse_address(), or as a server prints it, "https://host:8000" and
/// "http://[::1]:8000", also with a slash at the end. \throws kConfig naming `who` for everything else
Address parse_server_address(std::string_view text, std::string_view who, int least = 1);

/// Returns an IPv6 address without the interface that it may name: "fe80::1" for "fe80::1%eth0".
std::string_view without_zone(std::string_view host);

/// Parses a host that stands alone: a name, an IPv4 address, or an IPv6 address with or without brackets. Returns it
/// without brackets. \throws kConfig naming `who`
std::string parse_host(std::string_view text, std::string_view who);

/// Parses a port that stands alone. \throws kConfig naming `who` unless it is a number from `least` to 65535
uint16_t parse_port(std::string_view text, std::string_view who, int least = 1);

}  // namespace evenkeel
