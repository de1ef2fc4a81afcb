/// \file  Provides a grid that has no nodes behind it, for tests of what is sent to nodes and when.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/plain/text.h"
#include "flower/federation/grid.h"

namespace evenkeel::flower {

/// A grid of one node, which is online and never answers.
class SilentGrid : public Grid {
 public:
  std::vector<NodeInfo> nodes() override {
    NodeInfo node;
    node.id = 7;
    node.name = "site";
    node.fingerprint = "SHA256:site";
    node.online = true;
    return {node};
  }
  std::string send(uint64_t /*node*/, const Content& /*content*/, SendOptions options) override {
    lives_.push_back(options.ttl_s);
    return concat("message ", lives_.size());
  }
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point /*deadline*/) override { return {}; }
  void forget(const std::string& /*message_id*/) override {}

  /// Seconds that each message which was sent may live.
  const std::vector<double>& lives() const { return lives_; }

 private:
  std::vector<double> lives_{};
};

}  // namespace evenkeel::flower
