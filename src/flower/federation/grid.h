/// \file  The nodes of a Flower federation as a server sees them: who is there, a message to one, what came of it.
/// A coordinator of ours is one (flower/server/coordinator.h), an app inside a SuperLink another
/// (flower/federation/app_grid.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "flower/server/coordinator.h"

namespace evenkeel {

/// Threads: one caller.
class Grid {
 public:
  virtual ~Grid() = default;
  virtual std::vector<wire::NodeInfo> nodes() = 0;
  /// As wire::Coordinator, all of them.
  virtual std::string send(uint64_t node, const wire::Content& content, wire::SendOptions options) = 0;
  virtual std::optional<wire::Arrival> wait(std::chrono::steady_clock::time_point deadline) = 0;
  virtual void forget(const std::string& message_id) = 0;
  /// How the run ended, for whoever started the server to learn.
  virtual void done(const std::filesystem::path& /*folder*/) {}
  virtual void failed(const std::string& /*why*/) {}
};

}  // namespace evenkeel
