/// \file  The certificate of a listening server, and what it grants to one node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace evenkeel::wire {

/// PEM files of the server. Nodes are known by their keys, not by certificates.
struct TlsFiles {
  std::filesystem::path certificate;  ///< with a subjectAltName for the address that nodes use; chain included
  std::filesystem::path key;
};

/// What one node may ask for. Beyond it its calls are refused and it is named in the log; others go on.
struct NodeLimits {
  double calls_per_s = 200;            ///< of calls other than those that move objects, on average
  double burst = 400;                  ///< calls at once
  size_t open_messages = 64;           ///< instructions that it has not answered: more cannot be sent
  uint64_t spool = uint64_t{4} << 30;  ///< bytes that arrived before it was known where they belong
  double head_s = 10;                  ///< for the head of a request
  double bytes_per_s = 16 << 10;       ///< below which a body, after ten seconds, is not worth a thread
  double silence_s = 20;               ///< within a body, or an answer that is not taken
  double idle_s = 30;                  ///< that a connection may be silent between two requests
};

}  // namespace evenkeel::wire
