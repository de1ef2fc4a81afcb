/// \file  Declares the server's interface to the nodes of a Flower federation: list the nodes, send a message to one,
/// wait for replies. CoordinatorGrid implements it with evenkeel's own coordinator (flower/server/coordinator.h),
/// AppGrid with an app inside a SuperLink (flower/federation/app_grid.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "flower/server/coordinator.h"

namespace evenkeel::flower {

/// Sends messages to nodes and collects their replies. Threads: one caller at a time.
class Grid {
 public:
  virtual ~Grid() = default;
  /// Returns the nodes that may be addressed.
  virtual std::vector<NodeInfo> nodes() = 0;
  /// Returns true if nodes() names every node that may join, online or not: the grid has a list of keys.
  virtual bool lists_all() const { return false; }
  /// Returns false if the nodes have no keys that the server knows. Their uploads cannot be masked then.
  virtual bool knows_keys() const { return true; }
  /// Returns false if the key with this fingerprint may not join any more.
  virtual bool admits(const std::string& /*fingerprint*/) const { return true; }
  /// Sends `content` to a node and returns the message's id. send() and forget() have the contract of the functions of
  /// Coordinator with these names.
  virtual std::string send(uint64_t node, const Content& content, SendOptions options) = 0;
  /// Waits for the next result of a message. May return nothing before `deadline`, and does so when it has passed.
  virtual std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline) = 0;
  /// Gives a message up: its reply is discarded.
  virtual void forget(const std::string& message_id) = 0;
  /// Reports to the program that started the server that the run succeeded. \param folder  the run folder
  virtual void done(const std::filesystem::path& /*folder*/) {}
  /// Reports that the run failed. \param why  the error message
  virtual void failed(const std::string& /*why*/) {}
};

}  // namespace evenkeel::flower
