/// \file  The plan of a federation whose rows are at its nodes: `evenkeel doctor --config CONFIG --serve`.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace evenkeel::apps {

/// Prints memory, traffic, time and disk of server and nodes, and what cannot be known without the nodes' rows.
/// \param describe_machine  called after the config is read, so that a mistake in it is said first
/// \throws kConfig, kData, kCheckpoint as `evenkeel serve` before it listens
void plan_served(const std::string& config, const std::vector<std::string>& settings,
                 const std::function<void()>& describe_machine);

}  // namespace evenkeel::apps
