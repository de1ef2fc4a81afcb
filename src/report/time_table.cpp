#include "report/time_table.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/plain/number_text.h"
#include "fed/round/progress.h"
#include "scoring/measures.h"

namespace evenkeel::report {
namespace {

constexpr double kMostTargets = 10;

/// Returns the headline measure if it is a share: the accuracy, or F1 for free text.
std::optional<double> score_to_reach(const scoring::TaskScore& score) {
  const auto& headline = scoring::headline_of(score.kind);
  return headline.is_share ? headline.of(score) : std::nullopt;
}

/// Returns the mean score over tasks and budgets, for the first rank evaluation mode and the run's own routing.
std::optional<double> mean_score(const records::RunRecords& run, int64_t round) {
  double sum = 0, count = 0;
  const auto scores = run.scores(round);
  for (const auto& score : scores) {
    if (score.served_by != scoring::ServedBy::kRun || score.rank_eval_mode != scores[0].rank_eval_mode) continue;
    if (const auto value = score_to_reach(score)) sum += *value, ++count;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::string time_cell(std::optional<double> seconds) {
  if (!seconds) return "-";
  return *seconds < 100 ? fixed(*seconds, 2) + " s" : fed::readable_duration(*seconds);
}

std::string cell(std::optional<double> value, double scale, int decimals) {
  return value ? fixed(scale * *value, decimals) : "-";
}

Table round_by_round(std::span<const records::RunRecords> runs) {
  Table grid{.title =
                 "time; simulated, all clients at once; bytes: up and down so far; score: accuracy, or F1 of words, "
                 "mean over tasks and budgets, percent; lost: clients that dropped out or were late",
             .head = {"run", "round", "took", "simulated time", "bytes", "loss", "score", "lost"},
             .keys = 2};
  for (const auto& run : runs)
    for (const auto& at : standings(run)) {
      const auto* record = at.round > 0 ? &run.rounds[static_cast<size_t>(at.round) - 1] : nullptr;
      const bool timed = record != nullptr && record->simulated;
      grid.add({run.label, std::to_string(at.round), timed ? time_cell(record->simulated->took) : "-",
                time_cell(at.seconds), compact(at.bytes), cell(at.loss, 1, 4), cell(at.score, 100, 1),
                record != nullptr && record->lost ? std::to_string(record->lost->size()) : "-"});
    }
  return grid;
}

/// A target: a score to exceed or a training loss to fall below.
struct Goal {
  std::optional<double> Standing::*value;
  bool falls;
  std::string_view title;
  double scale;
  bool met(const Standing& at, double target) const {
    const auto current = at.*value;
    const double rounding = 1e-12 * std::abs(target);  // of targets(), which scale and divide
    return current && (falls ? *current <= target + rounding : *current >= target - rounding);
  }
};

/// Returns a step of 1, 2 or 5 times a power of ten with at most kMostTargets steps between `low` and `high`.
double step_between(double low, double high) {
  const double raw = (high - low) / kMostTargets, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

/// Returns round target values within the range of the runs.
std::vector<double> targets(std::span<const std::vector<Standing>> all, const Goal& goal) {
  std::vector<double> seen;
  for (const auto& run : all)
    for (const auto& at : run)
      if (at.*goal.value) seen.push_back(goal.scale * *(at.*goal.value));
  if (seen.empty()) return {};
  const auto [low, high] = std::minmax_element(seen.begin(), seen.end());
  constexpr double kRounding = 1e-9;  // of means over tasks, relative to them
  if (*high - *low <= kRounding * std::max(std::abs(*low), std::abs(*high))) return {*low / goal.scale};
  const double step = step_between(*low, *high);
  std::vector<double> even;
  for (auto i = std::llround(std::ceil(*low / step)); static_cast<double>(i) * step <= *high; ++i)
    even.push_back(static_cast<double>(i) * step / goal.scale);
  if (goal.falls) std::reverse(even.begin(), even.end());
  return even;
}

std::optional<Table> reached(std::span<const records::RunRecords> runs, std::span<const std::vector<Standing>> all,
                             const Goal& goal) {
  const auto to_reach = targets(all, goal);
  if (to_reach.empty()) return std::nullopt;
  Table grid{
      .title = concat("until a ", goal.title, goal.falls ? " or less" : " or more", " is reached first; -: never"),
      .head = {"run", std::string(goal.title), "round", "simulated time", "bytes"},
      .keys = 2};
  for (const double target : to_reach)
    for (size_t i = 0; i < all.size(); ++i) {
      const auto found =
          std::find_if(all[i].begin(), all[i].end(), [&](const auto& at) { return goal.met(at, target); });
      const bool met = found != all[i].end();
      grid.add({runs[i].label, fixed(goal.scale * target, goal.falls ? 3 : 1), met ? std::to_string(found->round) : "-",
                met ? time_cell(found->seconds) : "-", met ? compact(found->bytes) : "-"});
    }
  return grid;
}

}  // namespace

std::vector<Standing> standings(const records::RunRecords& run) {
  std::vector<Standing> all;
  if (const auto score = mean_score(run, 0)) {
    all.push_back({.score = score});
    if (!run.rounds.empty() && run.rounds[0].simulated) all.back().seconds = 0;
  }
  double bytes = 0;
  for (const auto& round : run.rounds) {
    bytes += static_cast<double>(round.bytes_up + round.bytes_down);
    all.push_back({.round = round.round, .bytes = bytes, .loss = round.loss, .score = mean_score(run, round.round)});
    if (round.simulated) all.back().seconds = round.simulated->end;
  }
  return all;
}

std::vector<Table> time_tables(std::span<const records::RunRecords> runs) {
  std::vector<std::vector<Standing>> all;
  for (const auto& run : runs) all.push_back(standings(run));
  std::vector<Table> tables{round_by_round(runs)};
  for (const auto& goal : {Goal{&Standing::score, false, "score", 100}, Goal{&Standing::loss, true, "loss", 1}})
    if (auto table = reached(runs, all, goal)) tables.push_back(std::move(*table));
  return tables;
}

}  // namespace evenkeel::report
