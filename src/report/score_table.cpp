#include "report/score_table.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "base/plain/number_text.h"
#include "report/score_cells.h"

namespace evenkeel::report {
namespace {

using Scores = std::vector<scoring::TaskScore>;
using Measures = std::span<const scoring::Measure* const>;

template <typename Condition>
Scores those_that(std::span<const scoring::TaskScore> scores, const Condition& condition) {
  Scores some;
  std::copy_if(scores.begin(), scores.end(), std::back_inserter(some), condition);
  return some;
}

Scores of_the_run(std::span<const scoring::TaskScore> scores) {
  return those_that(scores, [](const auto& score) { return score.served_by == scoring::ServedBy::kRun; });
}

std::vector<const scoring::TaskScore*> pointers(const Scores& scores) {
  std::vector<const scoring::TaskScore*> all;
  for (const auto& score : scores) all.push_back(&score);
  return all;
}

std::vector<double> budgets_of(const Scores& scores) {
  return scoring::distinct(std::span<const scoring::TaskScore>(scores), &scoring::TaskScore::budget);
}

std::vector<std::string> tasks_of(const Scores& scores) {
  return scoring::distinct(std::span<const scoring::TaskScore>(scores), &scoring::TaskScore::task);
}

/// Formats the mean of a measure over tasks; "-" unless all of them have it. \param number  of the tasks
std::string mean_cell(const Scores& scores, size_t number, const scoring::Measure& measure) {
  return measure_cell(scores.size() < number ? std::nullopt : mean_of(pointers(scores), measure), measure);
}

bool is_choice(const scoring::TaskScore& score) { return score.kind == scoring::AnswerKind::kChoice; }

/// Returns the accuracy of guessing as a cell, mean over scores.
std::string level_cell(const Scores& scores, double scoring::TaskScore::*level) {
  double sum = 0;
  for (const auto& score : scores) sum += score.*level;
  return fixed(100 * sum / static_cast<double>(scores.size()), 1);
}

std::string budget_title(const Scores& scores, double budget) {
  const auto found =
      std::find_if(scores.rbegin(), scores.rend(), [&](const auto& one) { return one.budget == budget; });
  return concat("budget ", budget, ", K=", found->top_k);
}

/// Adds the line of one task, or the means over all tasks.
void add_line(Table& table, const std::string& name, const Scores& of_line, std::span<const double> budgets,
              Measures measures) {
  std::vector<std::string> cells = {name};
  const auto tasks = tasks_of(of_line).size();
  for (const double budget : budgets) {
    const auto here = those_that(of_line, [&](const auto& score) { return score.budget == budget; });
    for (const auto* measure : measures) cells.push_back(mean_cell(here, tasks, *measure));
  }
  if (is_choice(of_line.front()))
    for (const auto level : {&scoring::TaskScore::chance, &scoring::TaskScore::majority})
      cells.push_back(level_cell(of_line, level));
  table.add(std::move(cells));
}

std::string counted(const scoring::TaskScore& score) {
  if (score.questions == score.rows) return concat(score.task, ' ', score.rows);
  return concat(score.task, ' ', score.questions, " in ", score.rows, " rows");
}

/// Returns the numbers of questions and rows: "questions: boolq 100, obqa 98 in 100 rows".
std::string counts_text(const Scores& scores) {
  std::vector<std::string> all;
  for (const auto& score : scores)
    if (auto text = counted(score); std::find(all.begin(), all.end(), text) == all.end())
      all.push_back(std::move(text));
  return concat("questions: ", join(all));
}

std::string means_over_budgets(const Scores& scores, Measures measures) {
  std::vector<std::string> means;
  const auto budgets = budgets_of(scores).size(), all = budgets * tasks_of(scores).size();
  for (const auto* measure : measures)
    means.push_back(concat(measure->short_title, ' ', mean_cell(scores, all, *measure)));
  return concat("mean over ", budgets, " budgets: ", join(means));
}

std::string legend(Measures measures) {
  std::vector<std::string> meanings;
  for (const auto* measure : measures) meanings.push_back(concat(measure->short_title, ": ", measure->title));
  return join(meanings, "; ");
}

/// Returns what unreadable answers mean for the accuracy; "" if at most half of the answers cannot be read.
std::string unreadable_note(const Scores& scores) {
  double invalid = 0;
  for (const auto& score : scores) invalid += is_choice(score) ? score.invalid_rate : 0;
  const auto all = static_cast<double>(scores.size());
  if (invalid >= all) return "no answer can be read (inv 100 %): acc is 0 for this reason; compare log-lik or lik";
  if (invalid <= 0.5 * all) return "";
  return "most answers cannot be read (inv): acc says nothing yet; train longer, or compare log-lik or lik";
}

std::string mode_title(const std::string& mode) {
  if (mode == "a") return "rank evaluation mode a: the adapter cut to the budget's rank, all experts";
  if (mode == "b") return "rank evaluation mode b: the whole adapter, as many experts as the budget allows";
  return "";
}

std::string note_of(const Scores& scores, Measures measures) {
  std::vector<std::string> parts;
  if (budgets_of(scores).size() > 1) parts.push_back(means_over_budgets(scores, measures));
  parts.push_back(counts_text(scores));
  parts.push_back(legend(measures));
  if (auto unreadable = unreadable_note(scores); !unreadable.empty()) parts.push_back(std::move(unreadable));
  return join(parts, ". ") + '.';
}

/// Makes the table of the run's own scores of one kind and rank evaluation mode. REQUIRES one score or more
Table own_table(const Scores& scores, Measures measures) {
  Table table{.title = mode_title(scores.front().rank_eval_mode), .head = {"task"}};
  const auto budgets = budgets_of(scores);
  for (const double budget : budgets) {
    const size_t first = table.head.size();
    for (const auto* measure : measures) table.head.emplace_back(measure->short_title);
    table.groups.push_back({first, table.head.size(), budget_title(scores, budget)});
  }
  if (is_choice(scores.front())) table.head.insert(table.head.end(), {"chance", "major"});
  for (const auto& task : tasks_of(scores))
    add_line(table, task, those_that(scores, [&](const auto& score) { return score.task == task; }), budgets, measures);
  add_line(table, "mean", scores, budgets, measures);
  table.note = note_of(scores, measures);
  return table;
}

/// Makes a table of the first measure, averaged over tasks: one row per way of serving, one column per budget.
Table served_table(const Scores& scores, const scoring::Measure& measure) {
  Table table{.head = {concat(measure.short_title, ", mean over tasks")},
              .note =
                  "exported: by programs that read the adapter, without what no adapter file holds "
                  "(docs/serving.md)"};
  const auto budgets = budgets_of(scores);
  for (const double budget : budgets) table.head.push_back(concat("budget ", budget));
  for (const auto by : scoring::distinct(std::span<const scoring::TaskScore>(scores), &scoring::TaskScore::served_by)) {
    std::vector<std::string> row = {served_name(by)};
    for (const double budget : budgets) {
      const auto here =
          those_that(scores, [&](const auto& score) { return score.served_by == by && score.budget == budget; });
      row.push_back(mean_cell(here, tasks_of(scores).size(), measure));
    }
    table.add(std::move(row));
  }
  return table;
}

/// Adds the tables of one kind and rank evaluation mode.
void add_tables(const Scores& scores, std::vector<Table>& tables) {
  const auto own = of_the_run(scores);
  const auto measures = scoring::measures_of(scores);
  if (own.empty() || measures.empty()) return;
  tables.push_back(own_table(own, measures));
  if (own.size() < scores.size()) tables.push_back(served_table(scores, *measures.front()));
}

}  // namespace

std::string served_name(scoring::ServedBy by) {
  if (by == scoring::ServedBy::kRun) return "in the run";
  return by == scoring::ServedBy::kTransformers ? "exported: transformers" : "exported: native gates";
}

std::vector<Table> score_tables(std::span<const scoring::TaskScore> scores) {
  std::vector<Table> tables;
  for (const auto kind : scoring::kAnswerKinds)
    for (const auto& mode : scoring::distinct(scores, &scoring::TaskScore::rank_eval_mode))
      add_tables(those_that(scores,
                            [&](const auto& score) {
                              return !score.client && score.kind == kind && score.rank_eval_mode == mode;
                            }),
                 tables);
  return tables;
}

std::string score_text(std::span<const scoring::TaskScore> scores) { return text_of(score_tables(scores)); }

}  // namespace evenkeel::report
