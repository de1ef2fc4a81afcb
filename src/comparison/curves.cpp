#include "comparison/curves.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "records/run_costs.h"

namespace evenkeel::comparison {
namespace {

/// Values of a run by round.
using ByRound = std::map<int64_t, double>;

Curve curve_of(std::string arm, std::string rank_eval_mode, std::span<const ByRound> runs) {
  Curve curve{.arm = std::move(arm), .rank_eval_mode = std::move(rank_eval_mode)};
  std::set<int64_t> rounds;
  for (const auto& run : runs)
    for (const auto& [round, value] : run) rounds.insert(round);
  curve.by_run.resize(runs.size());
  for (const int64_t round : rounds) {
    std::vector<double> values;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto found = runs[i].find(round);
      curve.by_run[i].push_back(found == runs[i].end() ? std::nullopt : std::optional(found->second));
      if (found != runs[i].end()) values.push_back(found->second);
    }
    curve.points.push_back({round, static_cast<int64_t>(values.size()), mean_of(values), t_interval(values)});
  }
  return curve;
}

bool counts(const fed::EvaluationRecord& evaluation) {
  const auto& score = evaluation.score;
  return !score.client && score.is_complete() && score.served_by == scoring::ServedBy::kRun;
}

/// The tasks that have a measure, and the budgets at which runs were scored.
struct ScoredAt {
  std::set<std::string> tasks;
  std::set<double> budgets;
};

ScoredAt scored_at(const StudyRuns& study, const scoring::Measure& measure, std::optional<double> budget) {
  ScoredAt at;
  for (const auto& run : study.runs) {
    if (!run.records) continue;
    for (const auto& evaluation : run.records->evaluations) {
      if (evaluation.score.client) continue;
      if (!budget) at.budgets.insert(evaluation.score.budget);
      if (measure.of(evaluation.score)) at.tasks.insert(evaluation.score.task);
    }
  }
  if (budget) at.budgets = {*budget};
  return at;
}

/// Returns the mean of a measure over all tasks and budgets after each round, for one rank evaluation mode. Rounds that
/// lack a score are left out.
ByRound scores_by_round(const records::RunRecords& run, const scoring::Measure& measure,
                        const std::string& rank_eval_mode, const ScoredAt& at) {
  std::map<int64_t, std::map<std::pair<double, std::string>, double>> found;
  for (const auto& evaluation : run.evaluations) {
    const auto& score = evaluation.score;
    if (!counts(evaluation) || score.rank_eval_mode != rank_eval_mode || !at.budgets.contains(score.budget)) continue;
    if (const auto value = measure.of(score)) found[evaluation.round][{score.budget, score.task}] = *value;
  }
  ByRound values;
  for (const auto& [round, scores] : found) {
    if (scores.size() < at.tasks.size() * at.budgets.size()) continue;
    double sum = 0;
    for (const auto& [key, value] : scores) sum += value;
    values[round] = sum / static_cast<double>(scores.size());
  }
  return values;
}

std::set<std::string> modes_of(std::span<const records::RunRecords* const> runs) {
  std::set<std::string> modes;
  for (const auto* run : runs)
    for (const auto& evaluation : run->evaluations)
      if (counts(evaluation)) modes.insert(evaluation.score.rank_eval_mode);
  return modes;
}

void add_if_any(std::vector<Curve>& curves, Curve curve) {
  if (!curve.points.empty()) curves.push_back(std::move(curve));
}

/// Returns the mean of a member over the entries that have it.
std::optional<double> mean_where_known(std::span<const Spent> all, std::optional<double> Spent::*member) {
  std::vector<double> values;
  for (const auto& one : all)
    if (one.*member) values.push_back(*(one.*member));
  return values.empty() ? std::nullopt : std::optional(mean_of(values));
}

double mean_of_member(std::span<const Spent> all, double Spent::*member) {
  std::vector<double> values;
  for (const auto& one : all) values.push_back(one.*member);
  return mean_of(values);
}

}  // namespace

std::vector<const records::RunRecords*> runs_of(const StudyRuns& study, const std::string& arm) {
  std::vector<const records::RunRecords*> runs;
  for (const auto& run : study.runs)
    if (run.arm == arm && run.records) runs.push_back(&*run.records);
  return runs;
}

std::vector<Curve> score_curves(const StudyRuns& study, const scoring::Measure& measure, std::optional<double> budget) {
  const auto at = scored_at(study, measure, budget);
  std::vector<Curve> curves;
  for (const auto& arm : study.arms) {
    const auto runs = runs_of(study, arm);
    for (const auto& mode : modes_of(runs)) {
      std::vector<ByRound> values;
      for (const auto* run : runs) values.push_back(scores_by_round(*run, measure, mode, at));
      add_if_any(curves, curve_of(arm, mode, values));
    }
  }
  return curves;
}

std::vector<Curve> round_curves(const StudyRuns& study, const RoundValue& value) {
  std::vector<Curve> curves;
  for (const auto& arm : study.arms) {
    std::vector<ByRound> runs;
    for (const auto* run : runs_of(study, arm)) {
      auto& values = runs.emplace_back();
      for (const auto& round : run->rounds)
        if (const auto found = value(round)) values[round.round] = *found;
    }
    add_if_any(curves, curve_of(arm, "", runs));
  }
  return curves;
}

std::vector<Spent> spent_by(const records::RunRecords& run) {
  Spent sum;
  if (!run.rounds.empty() && run.rounds.front().simulated) sum.simulated_seconds = 0;
  std::vector<Spent> all{sum};
  for (const auto& round : run.rounds) {
    sum.round = round.round;
    sum.bytes += static_cast<double>(round.bytes_up + round.bytes_down);
    sum.flops = sum.flops && !records::withholds_work(round) ? std::optional(*sum.flops + round.flops) : std::nullopt;
    sum.seconds += round.seconds.round;
    sum.simulated_seconds = round.simulated ? std::optional(round.simulated->end) : std::nullopt;
    all.push_back(sum);
  }
  return all;
}

std::vector<Spent> mean_spent(std::span<const records::RunRecords* const> runs) {
  std::map<int64_t, std::vector<Spent>> by_round;
  for (const auto* run : runs)
    for (const auto& spent : spent_by(*run)) by_round[spent.round].push_back(spent);
  std::vector<Spent> means;
  for (const auto& [round, all] : by_round)
    means.push_back({round, mean_of_member(all, &Spent::bytes), mean_where_known(all, &Spent::flops),
                     mean_of_member(all, &Spent::seconds), mean_where_known(all, &Spent::simulated_seconds)});
  return means;
}

}  // namespace evenkeel::comparison
