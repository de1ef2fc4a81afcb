#include "comparison/score_lookup.h"

#include <algorithm>

#include "fed/run/stored_records.h"

namespace evenkeel::comparison {
namespace {

bool is_at(const auto& score, const Aspect& aspect, scoring::ServedBy served_by, double budget,
           const std::string& task) {
  return score.task == task && score.budget == budget && score.rank_eval_mode == aspect.rank_eval_mode &&
         score.served_by == served_by;
}

}  // namespace

ScoreLookup::ScoreLookup(const StudyRuns& study, bool with_items) {
  for (const auto& run : study.runs) {
    if (!run.missing.empty() || !run.records) continue;
    auto items = with_items ? fed::read_items(run.records->folder, run.records->last_evaluated())
                            : std::vector<fed::ItemRecord>();
    auto rows = items.empty() ? config::Values() : records::test_rows_of(*run.records);
    runs_.push_back({&run, run.scores(), std::move(items), std::move(rows)});
    const auto& scores = runs_.back().scores;
    all_.insert(all_.end(), scores.begin(), scores.end());
  }
}

std::vector<scoring::TaskScore> ScoreLookup::of_arm(const std::string& arm) const {
  std::vector<scoring::TaskScore> scores;
  for (const auto& run : runs_)
    if (run.run->arm == arm) scores.insert(scores.end(), run.scores.begin(), run.scores.end());
  return scores;
}

std::optional<double> ScoreLookup::value(const Aspect& aspect, int64_t seed, double budget, const std::string& task,
                                         const scoring::Measure& measure) const {
  const auto* run = find(aspect.arm, seed);
  if (run == nullptr) return std::nullopt;
  const auto served = served_in(*run, aspect);
  for (const auto& score : run->scores)
    if (is_at(score, aspect, served, budget, task) && score.is_complete()) return measure.of(score);
  return std::nullopt;
}

std::optional<double> ScoreLookup::mean(const Aspect& aspect, int64_t seed, double budget,
                                        const std::vector<std::string>& tasks, const scoring::Measure& measure) const {
  double sum = 0;
  for (const auto& task : tasks) {
    const auto one = value(aspect, seed, budget, task, measure);
    if (!one) return std::nullopt;
    sum += *one;
  }
  return tasks.empty() ? std::nullopt : std::optional(sum / static_cast<double>(tasks.size()));
}

std::vector<double> ScoreLookup::items(const Aspect& aspect, int64_t seed, double budget, const std::string& task,
                                       const scoring::Measure& measure) const {
  const auto* run = find(aspect.arm, seed);
  if (run == nullptr || measure.items == nullptr) return {};
  const auto served = served_in(*run, aspect);
  for (const auto& record : run->items)
    if (!record.client && is_at(record, aspect, served, budget, task)) return measure.items(record.items);
  return {};
}

std::optional<std::string> ScoreLookup::unlike_rows(const std::string& arm, const std::string& other,
                                                    int64_t seed) const {
  const auto *one = find(arm, seed), *two = find(other, seed);
  if (one == nullptr || two == nullptr || one->items.empty() || two->items.empty()) return std::nullopt;
  return records::differing_key(one->test_rows, two->test_rows);
}

const ScoreLookup::Run* ScoreLookup::find(const std::string& arm, int64_t seed) const {
  const auto found = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const Run& run) { return run.run->arm == arm && run.run->seed == seed; });
  return found == runs_.end() ? nullptr : &*found;
}

scoring::ServedBy ScoreLookup::served_in(const Aspect& aspect) const {
  const auto of_arm =
      std::find_if(runs_.begin(), runs_.end(), [&](const Run& run) { return run.run->arm == aspect.arm; });
  return of_arm == runs_.end() ? aspect.served_by : served_in(*of_arm, aspect);
}

bool ScoreLookup::has_no_exports(const std::string& arm) const {
  return std::any_of(runs_.begin(), runs_.end(), [&](const Run& run) {
    const auto& settings = run.run->records->settings;
    const auto found = settings.find("evaluate.as_exported");
    return run.run->arm == arm && found != settings.end() && found->second == "false";
  });
}

scoring::ServedBy ScoreLookup::served_in(const Run& run, const Aspect& aspect) {
  const bool exported = std::any_of(run.scores.begin(), run.scores.end(), [&](const scoring::TaskScore& score) {
    return score.rank_eval_mode == aspect.rank_eval_mode && score.served_by == aspect.served_by;
  });
  return exported ? aspect.served_by : scoring::ServedBy::kRun;
}

std::vector<std::string> tasks_with(std::span<const scoring::TaskScore> scores, const scoring::Measure& measure) {
  std::vector<std::string> tasks;
  for (const auto& score : scores)
    if (std::find(tasks.begin(), tasks.end(), score.task) == tasks.end() && measure.of(score))
      tasks.push_back(score.task);
  return tasks;
}

}  // namespace evenkeel::comparison
