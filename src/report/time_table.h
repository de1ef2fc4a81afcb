/// \file  Compares scores and losses of runs by simulated time (fed/round/virtual_clock.h), bytes and rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {

/// State of a run after a round; round 0 is before the first.
struct Standing {
  int64_t round = 0;
  std::optional<double> seconds{};  ///< simulated seconds since the beginning; nothing if no time is simulated
  double bytes = 0;                 ///< bytes up and down since the beginning, all clients
  std::optional<double> loss{};     ///< training loss of the round
  /// Mean of the headline measures (scoring/measures.h) over tasks and budgets, 0 to 1, with the run's own routing and
  /// in the first rank evaluation mode; without likelihood tasks. Nothing if the round has no such score.
  std::optional<double> score{};
};

/// Returns the state after each round and, if it was evaluated, before the first.
std::vector<Standing> standings(const records::RunRecords& run);

/// Makes tables of two kinds. One shows every run round by round. The others show, for evenly spaced scores and losses,
/// the rounds, simulated time and bytes after which each run first reached them.
std::vector<Table> time_tables(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::report
