/// \file  Declares the TLS files of a server and its limits per node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace evenkeel::flower {

/// The PEM files of the server. Nodes are authenticated by their keys, not by certificates.
struct TlsFiles {
  std::filesystem::path certificate;  ///< certificate chain, with a subjectAltName for the address that nodes use
  std::filesystem::path key;
};

/// The limits of one node. Calls beyond them are refused and logged with the node's name; other nodes are not affected.
struct NodeLimits {
  double calls_per_s = 200;            ///< calls per second on average, except calls that move objects
  double burst = 400;                  ///< most calls in a burst
  size_t open_messages = 64;           ///< most unanswered instructions; send() then fails
  uint64_t spool = uint64_t{4} << 30;  ///< most bytes of a reply spooled to disk
  double head_s = 10;                  ///< seconds for the head of a request, and for the TLS handshake
  double bytes_per_s = 16 << 10;       ///< slowest rate of a body or an answer in bytes/s, after ten seconds
  double silence_s = 20;               ///< seconds without progress in a body or an answer
  double idle_s = 30;                  ///< seconds that a connection may be idle between requests
};

}  // namespace evenkeel::flower
