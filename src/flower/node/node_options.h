/// \file  Declares the options of a node and the two exceptions that end its waits.
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>

#include "flower/format/record_dict.h"
#include "flower/http/endpoint.h"

namespace evenkeel::flower {

/// The options of a node.
struct NodeOptions {
  Endpoint server;
  /// The node's private key (flower/format/keys.h). It may lie in a read-only folder.
  std::filesystem::path key_file;
  /// Folder of this node alone, created if absent. It holds a lock and, while the node is joined, its id in link.json.
  /// After a crash, a new process reads this file and signs off the previous id.
  std::filesystem::path folder;
  double heartbeat_s = 30;  ///< heartbeat interval in seconds, 10 to 1800; one is sent every 2/3 of it
  double poll_s = 0.5;      ///< seconds: shortest pause of NodeLink::rest()
  /// Seconds: longest pause. Between poll_s and slowest_poll_s, a pause is 1/20 of the time since the last instruction.
  double slowest_poll_s = 3;
  int connections = 2;         ///< number of connections for objects, 1 to 64
  double call_timeout_s = 30;  ///< seconds without data after which a call fails; for heartbeats 5
  /// Bytes per chunk of the arrays that the node sends.
  size_t chunk_bytes = size_t{16} << 20;
  Limits limits{};
  /// Polled while waiting, by several threads. True ends the wait with Stopped.
  std::function<bool()> stop = [] { return false; };
};

/// Thrown when NodeOptions::stop ends a wait for the server.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped"; }
};

/// Thrown when an instruction or its run is over. The node may go on polling.
class RunOver : public std::exception {
 public:
  const char* what() const noexcept override { return "the run is over"; }
};

}  // namespace evenkeel::flower
