/// \file  Makes runs of a study for tests of comparisons and reports.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "comparison/compared_runs.h"

namespace evenkeel::testing {

inline const std::vector<double> kBudgets{0.5, 1};

inline scoring::TaskScore score_of(const std::string& task, double budget, double log_likelihood, double accuracy) {
  scoring::TaskScore score;
  score.task = task;
  score.budget = budget;
  score.rows = score.questions = 40;
  score.log_likelihood = log_likelihood;
  score.accuracy = accuracy;
  score.invalid_rate = 0.125;
  return score;
}

/// A run of two rounds. After them, task "a" has log-likelihood level - budget, task "b" has 2 (level - budget).
inline comparison::ArmRun run_of(const std::string& arm, int64_t seed, double level) {
  comparison::ArmRun run{.arm = arm, .seed = seed, .records = records::RunRecords()};
  run.records->seed = seed;
  run.records->label = arm;
  for (int64_t round = 1; round <= 2; ++round) {
    fed::RoundRecord record;
    record.round = round;
    record.bytes_up = 1000, record.bytes_down = 500 * round, record.tokens = 30, record.flops = 1e9;
    record.seconds.round = 1.25;
    run.records->rounds.push_back(record);
  }
  for (const double budget : kBudgets)
    for (const auto& [task, factor] : {std::pair{"a", 1.0}, {"b", 2.0}})
      run.records->evaluations.push_back({2, "fedit", score_of(task, budget, factor * (level - budget), 0.5)});
  return run;
}

inline void give_config(records::RunRecords& run, const std::string& toml) {
  run.set_config(fed::settle(fed::ExperimentConfig::read(config::Table::parse(toml, "test")), {}));
}

/// Returns a study with a run of each arm and seed 1, 2, ...; the first arm is the reference.
/// \param levels  by arm, one per seed
inline comparison::StudyRuns study_of(const std::vector<std::pair<std::string, std::vector<double>>>& levels) {
  comparison::StudyRuns study{
      .name = "study", .reference = levels[0].first, .endpoint = "log_likelihood", .arms = {}, .seeds = {}, .runs = {}};
  for (size_t i = 0; i < levels[0].second.size(); ++i) study.seeds.push_back(static_cast<int64_t>(i) + 1);
  for (const auto& [arm, of_seeds] : levels) {
    study.arms.push_back(arm);
    for (size_t i = 0; i < of_seeds.size(); ++i) study.runs.push_back(run_of(arm, study.seeds[i], of_seeds[i]));
  }
  return study;
}

inline comparison::ArmRun& changed_run(comparison::StudyRuns& study, const std::string& arm, int64_t seed) {
  return const_cast<comparison::ArmRun&>(*study.find(arm, seed));
}

inline const std::vector<double> kReference{-1, -1.2, -0.9, -1.1};

/// Gives every score of a run a rank evaluation mode, and adds the scores of a second one.
inline void give_modes(comparison::ArmRun& run, double second_gain) {
  auto second = run.records->evaluations;
  for (auto& evaluation : run.records->evaluations) evaluation.score.rank_eval_mode = "a";
  for (auto& evaluation : second) {
    evaluation.score.rank_eval_mode = "b";
    *evaluation.score.log_likelihood += second_gain;
    run.records->evaluations.push_back(evaluation);
  }
}

}  // namespace evenkeel::testing
