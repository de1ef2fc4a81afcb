#include "report/demo_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/plain/number_text.h"
#include "base/plain/text.h"
#include "report/score_table.h"
#include "report/table.h"

namespace evenkeel::report {
namespace {

constexpr size_t kTitleWidth = 26;

/// Returns the scores of the run itself, without those of exported adapters.
std::vector<scoring::TaskScore> own_scores(const records::RunRecords& run, int64_t round) {
  auto scores = run.scores(round);
  std::erase_if(scores, [](const scoring::TaskScore& score) { return score.served_by != scoring::ServedBy::kRun; });
  return scores;
}

/// Returns the mean over the tasks of a budget, times 100.
double percent(std::span<const scoring::TaskScore> scores, double budget, double scoring::TaskScore::*member) {
  double sum = 0;
  int64_t count = 0;
  for (const auto& score : scores)
    if (score.budget == budget) sum += score.*member, ++count;
  return count == 0 ? 0 : 100 * sum / static_cast<double>(count);
}

DemoLine line_of(const std::string& title, std::span<const scoring::TaskScore> scores,
                 double scoring::TaskScore::*member) {
  DemoLine line{.title = title};
  for (const double budget : scoring::distinct(scores, &scoring::TaskScore::budget)) {
    line.by_budget.push_back(percent(scores, budget, member));
    line.mean += line.by_budget.back();
  }
  if (!line.by_budget.empty()) line.mean /= static_cast<double>(line.by_budget.size());
  return line;
}

std::string cell(const std::string& text) { return std::string(text.size() < 7 ? 7 - text.size() : 1, ' ') + text; }

std::string padded(std::string title) {
  title.resize(std::max(title.size(), kTitleWidth), ' ');
  return title;
}

/// Rounds to tenths, as the table does.
double in_tenths(double value) { return std::round(10 * value) / 10; }

/// Returns the variance of one task's accuracy over draws of its questions.
double variance(const scoring::TaskScore& score) {
  return score.rows == 0 ? 0 : score.accuracy * (1 - score.accuracy) / static_cast<double>(score.rows);
}

/// Returns true if no answer of the run can be read.
bool is_unreadable(const records::RunRecords& run) {
  const auto scores = own_scores(run, run.last_evaluated());
  return !scores.empty() &&
         std::all_of(scores.begin(), scores.end(), [](const auto& score) { return score.invalid_rate >= 1; });
}

}  // namespace

DemoLine demo_line(const std::string& title, const records::RunRecords& run, int64_t round) {
  return line_of(title, own_scores(run, round), &scoring::TaskScore::accuracy);
}

DemoLine majority_line(const records::RunRecords& run) {
  return line_of("the most frequent answer", own_scores(run, run.last_evaluated()), &scoring::TaskScore::majority);
}

double half_interval(const records::RunRecords& run) {
  const auto scores = own_scores(run, run.last_evaluated());
  const std::span<const scoring::TaskScore> all(scores);
  const auto tasks = static_cast<double>(scoring::distinct(all, &scoring::TaskScore::task).size());
  const auto budgets = static_cast<double>(scoring::distinct(all, &scoring::TaskScore::budget).size());
  if (scores.empty()) return 0;
  double sum = 0;
  for (const auto& score : scores) sum += variance(score) / budgets;
  return 1.96 * 100 * std::sqrt(2 * sum) / tasks;
}

std::string demo_titles(const records::RunRecords& run) {
  std::string titles(kTitleWidth, ' ');
  const auto scores = own_scores(run, run.last_evaluated());
  for (const int64_t k : scoring::distinct(std::span<const scoring::TaskScore>(scores), &scoring::TaskScore::top_k))
    titles += cell(concat("K=", k));
  return titles + cell("mean") + "\n";
}

std::string demo_row(const DemoLine& line) {
  std::string row = padded(line.title);
  for (const double value : line.by_budget) row += cell(fixed(value, 1));
  return row + cell(fixed(line.mean, 1)) + "\n";
}

std::string demo_sentence(const DemoLine& before, const DemoLine& first, const DemoLine& second,
                          const records::RunRecords& run) {
  if (is_unreadable(run) && first.mean == 0 && second.mean == 0)
    return concat("What it shows: accuracy is 0 because no answer can be read (invalid 100 %); it says nothing of ",
                  first.title, " and ", second.title, ".\n");
  const auto untrained = before.by_budget.empty() ? std::string() : concat(fixed(before.mean, 1), " % before, ");
  const double gap = std::abs(in_tenths(second.mean) - in_tenths(first.mean)), chance = half_interval(run);
  return concat(
      "What it shows: one adapter from unequal clients answers at every K: ", untrained, fixed(first.mean, 1),
      " % with ", first.title, ", ", fixed(second.mean, 1), " % with ", second.title, "; their difference of ",
      fixed(gap, 1), " points ",
      gap <= chance ? "is within sampling error at one seed" : "exceeds sampling error: confirm it with other seeds",
      " (95 % over these questions: ", fixed(chance, 1), " points).\n");
}

}  // namespace evenkeel::report
