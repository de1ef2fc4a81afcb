/// \file  The options of a node, and the two ways in which its waiting ends early.
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>

#include "flower/format/record_dict.h"
#include "flower/http/endpoint.h"

namespace evenkeel::wire {

struct NodeOptions {
  Endpoint server;
  /// The node's key (flower/format/keys.h). Beside it, in "<key_file>.node", its node id is kept while it is joined, so
  /// that a process which died is followed by one that may join at once.
  std::filesystem::path key_file;
  double heartbeat_s = 30;     ///< what the server is promised, 10 to 1800; beats come at 2/3 of it
  double poll_s = 0.5;         ///< rest() between two polls that found nothing, at first
  double slowest_poll_s = 3;   ///< rest() grows to this, a twentieth of the time that nothing was found for
  int connections = 2;         ///< that carry objects
  double call_timeout_s = 30;  ///< of a call that hears nothing; heartbeats: 5
  size_t chunk_bytes = size_t{16} << 20;
  Limits limits{};
  /// Asked while waiting, from several threads; true ends every wait with Stopped.
  std::function<bool()> stop = [] { return false; };
};

/// The node was asked to stop while it waited for the server.
class Stopped : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped"; }
};

/// The run that an instruction belongs to is over, or the instruction is: go on polling.
class RunOver : public std::exception {
 public:
  const char* what() const noexcept override { return "the run is over"; }
};

}  // namespace evenkeel::wire
