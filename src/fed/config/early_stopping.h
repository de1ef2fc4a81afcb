/// \file  Defines how a run compares its rounds: the measure of a round, and the rule that ends a run early. The values
/// of rounds are computed from their scores in fed/run/best_round.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "scoring/measures.h"

namespace evenkeel::fed {

/// `[evaluate.best]`: the value of a round, for evaluate.keep_best and train.stop.
struct BestSection {
  scoring::MeasureName measure{};
  double budget = 0;
  std::vector<std::string> tasks;
  void visit(auto& field) {
    field("measure", measure,
          "measure of the best round (docs/study-statistics.md), a mean over tasks, budgets and rank_eval_modes");
    field("budget", budget,
          "budget at which the measure is taken, one of evaluate.budgets; 0: the mean over all of them");
    field("tasks", tasks,
          "tasks over which the measure is taken; empty: all. A score on the rows that the round was chosen by is "
          "optimistic");
  }
  void resolve(const config::Table& table) const {
    table.check(budget == 0 || (budget > 0 && budget <= 1), "budget", budget, "0, or greater than 0, at most 1");
  }
};

/// `[train.stop]`: ends a run before its last round.
struct StopSection {
  int64_t patience = 0;
  double min_delta = 0;
  void visit(auto& field) {
    field("patience", patience,
          "end the run after this many evaluations in a row without a gain of evaluate.best.measure; 0: never before "
          "train.rounds");
    field("min_delta", min_delta, "the measure must improve by more than this to count as a gain, 0 or more");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("patience", patience, 0, limits::kSteps);
    table.check_from_zero("min_delta", min_delta);
    table.check(patience > 0 || min_delta == 0, "min_delta", min_delta, "0, where patience is 0 (no rule)");
  }
};

}  // namespace evenkeel::fed
