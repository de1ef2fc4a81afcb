#include "records/run_costs.h"

#include <algorithm>
#include <array>

namespace evenkeel::records {
namespace {

template <auto kMember>
std::optional<double> cost(const Cost& cost) {
  return cost.*kMember;
}

constexpr std::array kCosts{CostMeasure{"bytes_up", "bytes up", cost<&Cost::bytes_up>},
                            CostMeasure{"bytes_down", "bytes down", cost<&Cost::bytes_down>},
                            CostMeasure{"flops", "FLOPs", cost<&Cost::flops>},
                            CostMeasure{"tokens", "tokens", cost<&Cost::tokens>},
                            CostMeasure{"seconds", "seconds", cost<&Cost::seconds>},
                            CostMeasure{"simulated_seconds", "simulated s", cost<&Cost::simulated>}};

}  // namespace

Cost cost_of(const RunRecords& run) {
  Cost cost;
  double flops = 0, tokens = 0;
  for (const auto& round : run.rounds) {
    cost.bytes_up += static_cast<double>(round.bytes_up);
    cost.bytes_down += static_cast<double>(round.bytes_down);
    flops += round.flops;
    tokens += static_cast<double>(round.tokens);
    cost.seconds += round.seconds.round;
    if (round.simulated) cost.simulated = round.simulated->end;
  }
  if (std::none_of(run.rounds.begin(), run.rounds.end(), withholds_work)) cost.flops = flops, cost.tokens = tokens;
  return cost;
}

bool withholds_work(const fed::RoundRecord& round) {
  return round.withheld || std::any_of(round.clients.begin(), round.clients.end(),
                                       [](const auto& client) { return client.privacy && client.privacy->withheld; });
}

std::span<const CostMeasure> cost_measures() { return kCosts; }

}  // namespace evenkeel::records
