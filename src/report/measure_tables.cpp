#include "report/measure_tables.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/plain/number_text.h"
#include "report/score_cells.h"
#include "report/score_table.h"

namespace evenkeel::report {
namespace {

std::string level_text(double share) { return fixed(100 * share, 1); }

const scoring::TaskScore* find(const Scored& from, const std::string& task, double budget) {
  for (const auto& score : from.scores)
    if (score.task == task && score.budget == budget) return &score;
  return nullptr;
}

/// Returns the tasks of all runs in order of appearance.
std::vector<std::string> all_tasks(std::span<const Scored> runs) {
  std::vector<scoring::TaskScore> every;
  for (const auto& run : runs) every.insert(every.end(), run.scores.begin(), run.scores.end());
  return scoring::distinct(every, &scoring::TaskScore::task);
}

/// Returns the mean of a measure over tasks, at a budget; nothing unless all tasks have it.
std::optional<double> mean(const Scored& run, std::span<const std::string> tasks, double budget,
                           const scoring::Measure& measure) {
  std::vector<const scoring::TaskScore*> scores;
  for (const auto& task : tasks) {
    scores.push_back(find(run, task, budget));
    if (scores.back() == nullptr) return std::nullopt;
  }
  return mean_of(scores, measure);
}

/// Returns the score of a task in the first run that has the task; null if none has.
const scoring::TaskScore* first_score(std::span<const Scored> runs, const std::string& task) {
  for (const auto& run : runs)
    for (const auto& score : run.scores)
      if (score.task == task) return &score;
  return nullptr;
}

/// A baseline of guessing. (Tasks with free text have none.)
struct Level {
  std::string_view title;
  double scoring::TaskScore::*value;
};
constexpr std::array kLevels{Level{"chance", &scoring::TaskScore::chance},
                             Level{"majority", &scoring::TaskScore::majority}};
/// Returns the baselines that a measure is compared with: the accuracy of guessing.
std::span<const Level> levels_of(const scoring::Measure& measure) {
  const bool guessed = measure.kind == scoring::AnswerKind::kChoice && measure.is_share;
  return std::span(kLevels).first(guessed ? kLevels.size() : 0);
}

std::string mean_level(std::span<const Scored> runs, std::span<const std::string> tasks, const Level& level) {
  double sum = 0;
  for (const auto& task : tasks) sum += first_score(runs, task)->*level.value;
  return level_text(sum / static_cast<double>(tasks.size()));
}

/// Adds a column per budget of every run, in a group per run.
void add_head(Table& table, std::span<const Scored> runs, const scoring::Measure& measure) {
  for (const auto& run : runs) {
    const size_t first = table.head.size();
    for (const double budget : run.budgets) table.head.push_back(concat(budget));
    table.groups.push_back({first, table.head.size(), run.label});
  }
  const size_t first = table.head.size();
  for (const auto& level : levels_of(measure)) table.head.emplace_back(level.title);
  for (const auto* title : {"rows", "questions"}) table.head.emplace_back(title);
  table.groups.push_back({first, table.head.size(), ""});
}

void add_task(Table& table, std::span<const Scored> runs, const std::string& task, const scoring::Measure& measure) {
  std::vector<std::string> row = {task};
  for (const auto& run : runs)
    for (const double budget : run.budgets) {
      const auto* score = find(run, task, budget);
      row.push_back(measure_cell(score != nullptr ? measure.of(*score) : std::nullopt, measure));
    }
  const auto& any = *first_score(runs, task);
  for (const auto& level : levels_of(measure)) row.push_back(level_text(any.*level.value));
  row.push_back(std::to_string(any.rows));
  row.push_back(std::to_string(any.questions));
  table.add(std::move(row));
}

void add_means(Table& table, std::span<const Scored> runs, std::span<const std::string> tasks,
               const scoring::Measure& measure) {
  std::vector<std::string> row = {"mean"};
  for (const auto& run : runs)
    for (const double budget : run.budgets) row.push_back(measure_cell(mean(run, tasks, budget, measure), measure));
  for (const auto& level : levels_of(measure)) row.push_back(mean_level(runs, tasks, level));
  row.resize(table.head.size());
  table.add(std::move(row));
}

/// Makes the table of a measure for the tasks of one kind, with several runs side by side.
Table measure_table(std::span<const Scored> runs, const scoring::Measure& measure) {
  Table table{.title = concat(measure.title, ", by budget, after the last evaluated round"), .head = {"task"}};
  const auto tasks = all_tasks(runs);
  add_head(table, runs, measure);
  for (const auto& task : tasks) add_task(table, runs, task, measure);
  add_means(table, runs, tasks, measure);
  return table;
}

std::string_view what_is_asked(scoring::AnswerKind kind) {
  if (kind == scoring::AnswerKind::kText) return "free text";
  return kind == scoring::AnswerKind::kChoice ? "choices" : "likelihoods";
}

}  // namespace

std::string label_of(const records::RunRecords& run, const std::string& mode, scoring::ServedBy by) {
  std::string aspect = mode;
  if (by != scoring::ServedBy::kRun) aspect += (aspect.empty() ? "" : ", ") + served_name(by);
  return aspect.empty() ? run.label : concat(run.label, " (", aspect, ")");
}

std::vector<Scored> scored(std::span<const records::RunRecords> runs, scoring::AnswerKind kind) {
  std::vector<Scored> all;
  for (const auto& run : runs) {
    auto every = run.scores(run.last_evaluated());
    std::erase_if(every, [&](const scoring::TaskScore& s) { return s.kind != kind; });
    for (const auto by : scoring::distinct(every, &scoring::TaskScore::served_by))
      for (const auto& mode : scoring::distinct(every, &scoring::TaskScore::rank_eval_mode)) {
        std::vector<scoring::TaskScore> scores;
        std::copy_if(every.begin(), every.end(), std::back_inserter(scores),
                     [&](const scoring::TaskScore& s) { return s.rank_eval_mode == mode && s.served_by == by; });
        if (scores.empty()) continue;
        auto budgets = scoring::distinct(scores, &scoring::TaskScore::budget);
        std::sort(budgets.begin(), budgets.end());
        all.push_back({&run, label_of(run, mode, by), std::move(scores), std::move(budgets)});
      }
  }
  return all;
}

std::string what_there_is(std::span<const records::RunRecords> runs) {
  std::vector<std::string_view> kinds;
  std::vector<scoring::TaskScore> scores;
  for (const auto kind : scoring::kAnswerKinds)
    for (const auto& run : scored(runs, kind)) {
      if (kinds.empty() || kinds.back() != what_is_asked(kind)) kinds.push_back(what_is_asked(kind));
      scores.insert(scores.end(), run.scores.begin(), run.scores.end());
    }
  if (kinds.empty()) return "nothing is evaluated yet";
  return concat("the tasks that were evaluated ask for ", join(kinds, " and "),
                "; there are: ", join(scoring::measures_in(scores)));
}

std::vector<Table> measure_tables(std::span<const records::RunRecords> runs, const scoring::Measure& measure) {
  std::vector<Table> all;
  for (const auto kind : scoring::kAnswerKinds) {
    const auto of_kind = scored(runs, kind);
    const bool measured = std::any_of(of_kind.begin(), of_kind.end(), [&](const Scored& run) {
      return std::any_of(run.scores.begin(), run.scores.end(), [&](const auto& score) { return measure.of(score); });
    });
    if (measured) all.push_back(measure_table(of_kind, measure));
  }
  return all;
}

}  // namespace evenkeel::report
