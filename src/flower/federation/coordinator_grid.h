/// \file  Implements Grid with evenkeel's own coordinator (flower/server/coordinator.h).
#pragma once

#include "flower/federation/grid.h"

namespace evenkeel::flower {

/// Owns a coordinator and passes each call on to it.
class CoordinatorGrid : public Grid {
 public:
  /// Starts listening. \throws as the constructor of Coordinator
  explicit CoordinatorGrid(CoordinatorOptions options) : lists_all_(!options.open), coordinator_(std::move(options)) {}
  /// Ends the run for the nodes, then stops listening.
  ~CoordinatorGrid() override { coordinator_.end_run(); }

  std::vector<NodeInfo> nodes() override { return coordinator_.nodes(); }
  bool lists_all() const override { return lists_all_; }
  bool admits(const std::string& fingerprint) const override { return coordinator_.admits(fingerprint); }
  std::string send(uint64_t node, const Content& content, SendOptions options) override {
    return coordinator_.send(node, content, std::move(options));
  }
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline) override {
    return coordinator_.wait(deadline);
  }
  void forget(const std::string& message_id) override { coordinator_.forget(message_id); }

  /// Returns the port on which the coordinator listens.
  int port() const { return coordinator_.port(); }

 private:
  bool lists_all_;
  Coordinator coordinator_;
};

}  // namespace evenkeel::flower
