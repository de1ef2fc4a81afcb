#include "comparison/traffic.h"

#include <map>

#include "comparison/curves.h"

namespace evenkeel::comparison {
namespace {

void add_bytes(std::optional<double>& sum, int64_t bytes) { sum = sum.value_or(0) + static_cast<double>(bytes); }

std::optional<double> per_run(const std::optional<double>& sum, const std::vector<const records::RunRecords*>& runs) {
  return sum ? std::optional(*sum / static_cast<double>(runs.size())) : std::nullopt;
}

}  // namespace

std::vector<TrafficOfContent> traffic_of(const StudyRuns& study, const std::string& arm) {
  const auto runs = runs_of(study, arm);
  std::map<std::string, TrafficOfContent> sums;
  for (const auto* run : runs) {
    if (run->scoring) {
      add_bytes(sums[kScoresOfNodes].up, run->scoring->bytes_up);
      add_bytes(sums[kScoresOfNodes].down, run->scoring->bytes_down);
    }
    for (const auto& round : run->rounds) {
      for (const auto& [content, bytes] : round.bytes_up_parts) add_bytes(sums[content].up, bytes);
      for (const auto& [content, bytes] : round.bytes_down_parts) add_bytes(sums[content].down, bytes);
    }
  }
  std::vector<TrafficOfContent> all;
  for (const auto& [content, sum] : sums) all.push_back({content, per_run(sum.up, runs), per_run(sum.down, runs)});
  return all;
}

}  // namespace evenkeel::comparison
