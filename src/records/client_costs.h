/// \file  Sums what training cost the clients of a run, by budget and experts per token: counted FLOPs and measured
/// seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::records {

inline constexpr double kCostTokens = 1000;  ///< tokens that a cost is stated for

/// The training of the clients of one budget and one K, all rounds.
struct ClientCost {
  double budget = 1;
  int64_t top_k = 0;  ///< K, experts per token; 0: a dense model
  double tokens = 0, flops = 0;
  double seconds = 0;       ///< as each client measured them while it trained; 0: not recorded
  double timed_tokens = 0;  ///< tokens of the rounds whose seconds are recorded

  /// Returns the FLOPs of kCostTokens tokens; empty without tokens.
  std::optional<double> token_flops() const;
  /// Returns the seconds of kCostTokens tokens, from the rounds whose seconds are recorded; empty without any.
  std::optional<double> token_seconds() const;
};

/// Returns the costs in ascending order of K, then of the budget.
std::vector<ClientCost> client_costs(const RunRecords& run);

}  // namespace evenkeel::records
