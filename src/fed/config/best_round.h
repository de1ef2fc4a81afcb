/// \file  Defines how a run compares its rounds: the measure of a round, and the rule that ends a run early. The values
/// of rounds are computed from their scores in fed/run/best_round.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::fed {

/// The measure of a round: of each of its scores (scoring/task_score.h). More is better for all.
enum class RoundMeasure {
  kLogLikelihood,
  kAccuracy,    ///< choices
  kExactMatch,  ///< free text
  kF1,          ///< free text
};
constexpr auto names(RoundMeasure) {
  return std::array{config::EnumName<RoundMeasure>{"log_likelihood", RoundMeasure::kLogLikelihood},
                    config::EnumName<RoundMeasure>{"accuracy", RoundMeasure::kAccuracy},
                    config::EnumName<RoundMeasure>{"exact_match", RoundMeasure::kExactMatch},
                    config::EnumName<RoundMeasure>{"f1", RoundMeasure::kF1}};
}

/// `[evaluate.best]`: the value of a round, for evaluate.keep_best and train.stop.
struct BestSection {
  RoundMeasure measure = RoundMeasure::kLogLikelihood;
  double budget = 0;
  std::vector<std::string> tasks;
  void visit(auto& field) {
    field("measure", measure,
          "what the best round has most of, for keep_best and train.stop: log_likelihood, accuracy, exact_match or f1; "
          "the mean over tasks, budgets and rank_eval_modes");
    field("budget", budget, "take the scores at this budget alone, one of evaluate.budgets; 0: at all of them");
    field(
        "tasks", tasks,
        "take the scores of these tasks alone, for example of files:NAME with rows held out for the choice; empty: of "
        "all. The score of a round that was chosen on the same rows is optimistic");
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
          "end the run after so many evaluations (evaluate.every) in a row without a gain of evaluate.best.measure; 0: "
          "never before train.rounds");
    field("min_delta", min_delta, "what counts as a gain: more than this above the last one that counted");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("patience", patience, 0, limits::kSteps);
    table.check_from_zero("min_delta", min_delta);
    table.check(patience > 0 || min_delta == 0, "min_delta", min_delta, "0, where patience is 0 (no rule)");
  }
};

}  // namespace evenkeel::fed
