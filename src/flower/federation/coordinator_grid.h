/// \file  A coordinator of ours (flower/server/coordinator.h) as the grid of a served run.
#pragma once

#include "flower/federation/grid.h"

namespace evenkeel {

class CoordinatorGrid : public Grid {
 public:
  /// Listens from now on. \throws as wire::Coordinator
  explicit CoordinatorGrid(wire::CoordinatorOptions options) : coordinator_(std::move(options)) {}
  /// The run is over for whoever still asks.
  ~CoordinatorGrid() override { coordinator_.end_run(); }

  std::vector<wire::NodeInfo> nodes() override { return coordinator_.nodes(); }
  std::string send(uint64_t node, const wire::Content& content, wire::SendOptions options) override {
    return coordinator_.send(node, content, std::move(options));
  }
  std::optional<wire::Arrival> wait(std::chrono::steady_clock::time_point deadline) override {
    return coordinator_.wait(deadline);
  }
  void forget(const std::string& message_id) override { coordinator_.forget(message_id); }

  int port() const { return coordinator_.port(); }

 private:
  wire::Coordinator coordinator_;
};

}  // namespace evenkeel
