/// \file  Averages the traffic of an arm by content.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"

namespace evenkeel::comparison {

/// The content under which traffic_of() counts all messages of scoring on nodes.
inline constexpr const char* kScoresOfNodes = "scores of nodes";

/// Bytes of one content (lora/payload.h), sums over rounds and clients, means over the runs of an arm.
struct TrafficOfContent {
  std::string content;
  std::optional<double> up, down;  ///< empty if no run of the arm sends it
};

/// Returns the traffic of an arm in alphabetical order of the contents.
std::vector<TrafficOfContent> traffic_of(const StudyRuns& study, const std::string& arm);

}  // namespace evenkeel::comparison
