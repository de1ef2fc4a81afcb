/// \file  Averages scores, losses and costs after each round over the runs of an arm.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"
#include "comparison/statistics.h"
#include "scoring/measures.h"

namespace evenkeel::comparison {

/// Mean over the runs of an arm that have a value after a round.
struct CurvePoint {
  int64_t round = 0;  ///< rounds done; 0: before the first
  int64_t runs = 0;   ///< number of runs with a value
  double mean = 0;
  std::optional<Interval> interval{};  ///< 95 %, by t over runs
};

/// A quantity of an arm over rounds.
struct Curve {
  std::string arm;
  std::string rank_eval_mode{};                              ///< rank evaluation mode, "a" or "b"; empty: none
  std::vector<CurvePoint> points{};                          ///< ascending by round
  std::vector<std::vector<std::optional<double>>> by_run{};  ///< per run of runs_of(): one value per point
};

/// Returns the runs of an arm that have records, by seed.
std::vector<const records::RunRecords*> runs_of(const StudyRuns& study, const std::string& arm);

/// Returns the curves of a measure with the run's own routing, one per arm and rank evaluation mode that has values. A
/// value is the mean over tasks and budgets. A run has one after a round that scored every task at every budget.
/// \param budget  the only budget that counts; empty: all budgets
std::vector<Curve> score_curves(const StudyRuns& study, const scoring::Measure& measure, std::optional<double> budget);

/// Returns a quantity of a round; nothing if the round does not have it.
using RoundValue = std::function<std::optional<double>(const fed::RoundRecord&)>;
/// Returns the curves of a quantity of rounds, one per arm that has values.
std::vector<Curve> round_curves(const StudyRuns& study, const RoundValue& value);

/// Costs from the beginning of a run to the end of a round.
struct Spent {
  int64_t round = 0;
  double bytes = 0;                         ///< up and down, all clients
  std::optional<double> flops = 0;          ///< of training; empty if a round withholds_work() (records/run_costs.h)
  double seconds = 0;                       ///< measured, without evaluations
  std::optional<double> simulated_seconds;  ///< empty if clients have no machine profiles
};
/// Returns the costs of a run before its first round (0) and after each round.
std::vector<Spent> spent_by(const records::RunRecords& run);
/// Returns the means for every round, over the runs that have done the round.
std::vector<Spent> mean_spent(std::span<const records::RunRecords* const> runs);

}  // namespace evenkeel::comparison
