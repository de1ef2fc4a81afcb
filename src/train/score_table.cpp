#include <algorithm>
#include <cstdio>
#include <iterator>

#include "train/evaluation.h"

namespace evenkeel {
namespace {

constexpr size_t kWidth = 120;
constexpr size_t kBlockWidth = 22;  // " |" and four numbers
constexpr size_t kTailWidth = 16;

std::string percent(double share, int width = 5) {
  char text[16];
  std::snprintf(text, sizeof text, "%*.*f", width, share < 0.9995 ? 1 : 0, 100 * share);
  return text;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// Distinct values in order of appearance.
template <typename T, typename Get>
std::vector<T> distinct(std::span<const TaskScore> scores, Get get) {
  std::vector<T> values;
  for (const auto& score : scores)
    if (std::find(values.begin(), values.end(), get(score)) == values.end()) values.push_back(get(score));
  return values;
}

const TaskScore* find(std::span<const TaskScore> scores, const std::string& task, double budget) {
  for (const auto& score : scores)
    if (score.task == task && score.budget == budget) return &score;
  return nullptr;
}

/// The unweighted mean over tasks, as a row of its own.
TaskScore mean(std::span<const TaskScore* const> scores) {
  TaskScore sum;
  const double weight = scores.empty() ? 0.0 : 1.0 / static_cast<double>(scores.size());
  for (const auto* score : scores) {
    sum.accuracy += weight * score->accuracy;
    sum.invalid_rate += weight * score->invalid_rate;
    sum.accuracy_valid += weight * score->accuracy_valid;
    sum.accuracy_likelihood += weight * score->accuracy_likelihood;
    sum.chance += weight * score->chance;
    sum.majority += weight * score->majority;
  }
  return sum;
}

std::string block(const TaskScore* score) {
  if (!score) return padded(" |", kBlockWidth);
  return " |" + percent(score->accuracy) + percent(score->invalid_rate) + percent(score->accuracy_valid) +
         percent(score->accuracy_likelihood);
}

std::string tail(const TaskScore& score) { return " |" + percent(score.chance, 7) + percent(score.majority, 7); }

std::string budget_title(std::span<const TaskScore> scores, double budget) {
  int64_t top_k = 0;
  for (const auto& score : scores)
    if (score.budget == budget) top_k = score.top_k;
  char text[32];
  std::snprintf(text, sizeof text, " | budget %g, K=%d", budget, static_cast<int>(top_k));
  return padded(text, kBlockWidth);
}

std::string table(std::span<const TaskScore> scores, std::span<const std::string> tasks,
                  std::span<const double> budgets, size_t name_width) {
  std::string titles = padded("", name_width), heads = padded("task", name_width), body;
  for (const double budget : budgets) {
    titles += budget_title(scores, budget);
    heads += " |  acc  inv  val  lik";
  }
  titles += " |";
  heads += " | chance  major";
  std::vector<std::vector<const TaskScore*>> by_budget(budgets.size());
  std::vector<const TaskScore*> any;
  for (const auto& task : tasks) {
    body += padded(task, name_width);
    const TaskScore* row = nullptr;
    for (size_t b = 0; b < budgets.size(); ++b) {
      const auto* score = find(scores, task, budgets[b]);
      body += block(score);
      if (!score) continue;
      by_budget[b].push_back(row = score);
    }
    if (row) any.push_back(row);
    body += (row ? tail(*row) : "") + "\n";
  }
  body += padded("mean", name_width);
  for (const auto& column : by_budget) {
    const auto score = mean(column);
    body += block(&score);
  }
  return titles + "\n" + heads + "\n" + body + tail(mean(any)) + "\n";
}

std::string mean_over_budgets(std::span<const TaskScore> scores, std::span<const double> budgets) {
  std::vector<const TaskScore*> all;
  for (const auto& score : scores) all.push_back(&score);
  const auto score = mean(all);
  return "mean over " + std::to_string(budgets.size()) + " budgets: acc" + percent(score.accuracy) + ", inv" +
         percent(score.invalid_rate) + ", lik" + percent(score.accuracy_likelihood) + "\n";
}

/// All tasks and budgets of one reading, in tables that fit the page.
std::string tables_of(std::span<const TaskScore> scores) {
  const auto tasks = distinct<std::string>(scores, [](const auto& score) { return score.task; });
  const auto budgets = distinct<double>(scores, [](const auto& score) { return score.budget; });
  size_t name_width = 4;
  for (const auto& task : tasks) name_width = std::max(name_width, task.size());
  const size_t fitting = std::max<size_t>(1, (kWidth - std::min(kWidth, name_width + kTailWidth)) / kBlockWidth);
  const size_t tables = (budgets.size() + fitting - 1) / fitting;
  std::string text;
  for (size_t i = 0; i < tables; ++i) {
    const size_t first = i * budgets.size() / tables, end = (i + 1) * budgets.size() / tables;
    text += table(scores, tasks, std::span(budgets).subspan(first, end - first), name_width) + "\n";
  }
  return budgets.size() > 1 ? text + mean_over_budgets(scores, budgets) : text;
}

std::string reading_title(const std::string& reading) {
  if (reading == "a") return "reading a: the adapter cut to the budget's rank, all experts\n";
  if (reading == "b") return "reading b: the whole adapter, as many experts as the budget allows\n";
  return "";
}

}  // namespace

std::string score_table(std::span<const TaskScore> scores) {
  std::string text;
  for (const auto& reading : distinct<std::string>(scores, [](const auto& score) { return score.reading; })) {
    std::vector<TaskScore> same;
    std::copy_if(scores.begin(), scores.end(), std::back_inserter(same),
                 [&](const TaskScore& score) { return score.reading == reading; });
    text += reading_title(reading) + tables_of(same);
  }
  return text +
         "percent: acc correct, inv no readable answer, val correct of the readable, lik gold ranked first, major most "
         "frequent\n";
}

}  // namespace evenkeel
