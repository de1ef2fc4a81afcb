/// \file  Scores and losses against simulated time (fed/round/virtual_clock.h) and against bytes, beside rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/run_records.h"

namespace evenkeel {

/// Where a run stands after a round, 0: before the first.
struct Standing {
  int64_t round = 0;
  std::optional<double> seconds{};  ///< simulated, since the beginning; of a run without devices nothing
  double bytes = 0;                 ///< up and down since the beginning, of all clients
  std::optional<double> loss{};     ///< training loss of the round
  std::optional<double>
      score{};  ///< mean over tasks and budgets of what the run's routing scored, a share; likelihoods
                ///< have none
};

/// After each round, and before the first where that was evaluated.
std::vector<Standing> standings(const RunRecords& run);

/// Two parts: every run round by round; and for scores in even steps, which of the runs reached them first when, in
/// rounds, simulated time and bytes.
std::string time_table(std::span<const RunRecords> runs);

}  // namespace evenkeel
