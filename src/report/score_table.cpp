#include "report/score_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <optional>

#include "report/text_grid.h"

namespace evenkeel::report {
namespace {

constexpr size_t kBlockPageWidth = 22;  // " |" and four numbers
constexpr size_t kTailWidth = 16;
constexpr size_t kMostTaskWidth = 40;  // longer names stand on a line of their own
constexpr int kNumber = 5, kTailNumber = 7;

std::string share_text(std::optional<double> share, int width) {
  char text[16];
  if (share)
    std::snprintf(text, sizeof text, "%*.*f", width, *share < 0.9995 ? 1 : 0, 100 * *share);
  else
    std::snprintf(text, sizeof text, "%*s", width, "-");
  return text;
}

/// Formats a number with four digits.
std::string plain_text(std::optional<double> value, int width) {
  char text[32];
  std::snprintf(text, sizeof text, "%*.4g", width, value.value_or(0));
  return text;
}

/// A column of a table. Cells are empty if a score has no such number.
struct Column {
  std::string_view head;
  std::optional<double> (*value)(const scoring::TaskScore&);
};

/// The tables of one kind of task: numbers per budget, numbers per task, and a legend.
struct Layout {
  scoring::AnswerKind kind;
  std::vector<Column> block, tail;
  std::string_view legend;
  std::string (*text)(std::optional<double> value, int width) = share_text;
  int width = kNumber;  ///< width of a number in a block
};

const std::array<Layout, 3>& layouts() {
  using Value = std::optional<double>;
  static const std::array<Layout, 3> all = {{
      {scoring::AnswerKind::kChoice,
       {{"acc", [](const scoring::TaskScore& s) -> Value { return s.accuracy; }},
        {"inv", [](const scoring::TaskScore& s) -> Value { return s.invalid_rate; }},
        {"val", [](const scoring::TaskScore& s) -> Value { return s.accuracy_valid; }},
        {"lik", [](const scoring::TaskScore& s) -> Value { return s.accuracy_likelihood; }}},
       {{"chance", [](const scoring::TaskScore& s) -> Value { return s.chance; }},
        {"major", [](const scoring::TaskScore& s) -> Value { return s.majority; }}},
       "percent: acc correct, inv no readable answer, val correct of the readable, lik gold ranked first, major most "
       "frequent\n"},
      {scoring::AnswerKind::kText,
       {{"EM", [](const scoring::TaskScore& s) -> Value { return s.exact_match; }},
        {"F1", [](const scoring::TaskScore& s) -> Value { return s.f1; }},
        {"bert", [](const scoring::TaskScore& s) { return s.bert_score; }},
        {"none", [](const scoring::TaskScore& s) -> Value { return s.empty_rate; }}},
       {},
       "percent: EM exact match, F1 of words, bert BERTScore F1 (- without an encoder), none empty answers\n"},
      {scoring::AnswerKind::kLikelihood,
       {{"nll", [](const scoring::TaskScore& s) -> Value { return s.nll; }},
        {"ppl", [](const scoring::TaskScore& s) -> Value { return s.perplexity; }}},
       {},
       "nll mean negative log-likelihood of a token of the answers, ppl perplexity\n",
       plain_text,
       2 * kNumber},
  }};
  return all;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

const scoring::TaskScore* find(std::span<const scoring::TaskScore> scores, const std::string& task, double budget) {
  for (const auto& score : scores)
    if (score.task == task && score.budget == budget) return &score;
  return nullptr;
}

/// Returns the unweighted mean over the scores that have the number.
std::optional<double> mean(std::span<const scoring::TaskScore* const> scores, const Column& column) {
  double sum = 0, count = 0;
  for (const auto* score : scores)
    if (const auto value = column.value(*score)) sum += *value, ++count;
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

/// Formats the numbers of one task, or their means over several tasks.
std::string block(const Layout& layout, std::span<const scoring::TaskScore* const> scores) {
  if (scores.empty()) return padded(" |", kBlockPageWidth);
  std::string text = " |";
  for (const auto& column : layout.block) text += layout.text(mean(scores, column), layout.width);
  return text;
}

std::string tail(const Layout& layout, std::span<const scoring::TaskScore* const> scores) {
  std::string text = layout.tail.empty() || scores.empty() ? "" : " |";
  for (const auto& column : layout.tail)
    if (!scores.empty()) text += share_text(mean(scores, column), kTailNumber);
  return text + "\n";
}

std::string heads(std::span<const Column> columns, int width) {
  std::string text = columns.empty() ? "" : " |";
  for (const auto& column : columns) {
    text.append(static_cast<size_t>(width) - column.head.size(), ' ');
    text += column.head;
  }
  return text;
}

std::string budget_title(std::span<const scoring::TaskScore> scores, double budget) {
  int64_t top_k = 0;
  for (const auto& score : scores)
    if (score.budget == budget) top_k = score.top_k;
  char text[32];
  std::snprintf(text, sizeof text, " | budget %g, K=%d", budget, static_cast<int>(top_k));
  return padded(text, kBlockPageWidth);
}

std::string table(const Layout& layout, std::span<const scoring::TaskScore> scores, std::span<const std::string> tasks,
                  std::span<const double> budgets, size_t name_width) {
  std::string titles = padded("", name_width), under = padded("task", name_width), body;
  for (const double budget : budgets) {
    titles += budget_title(scores, budget);
    under += heads(layout.block, layout.width);
  }
  if (!layout.tail.empty()) titles += " |";
  under += heads(layout.tail, kTailNumber);
  std::vector<std::vector<const scoring::TaskScore*>> by_budget(budgets.size());
  std::vector<const scoring::TaskScore*> any;
  for (const auto& task : tasks) {
    body += task.size() > name_width ? concat(task, '\n', padded("", name_width)) : padded(task, name_width);
    std::vector<const scoring::TaskScore*> row;
    for (size_t b = 0; b < budgets.size(); ++b) {
      const auto* score = find(scores, task, budgets[b]);
      body += block(layout, score ? std::span(&score, 1) : std::span<const scoring::TaskScore*>());
      if (!score) continue;
      by_budget[b].push_back(score);
      row = {score};
    }
    body += tail(layout, row);
    any.insert(any.end(), row.begin(), row.end());
  }
  body += padded("mean", name_width);
  for (const auto& column : by_budget) body += block(layout, column);
  return titles + "\n" + under + "\n" + body + tail(layout, any);
}

std::string mean_over_budgets(const Layout& layout, std::span<const scoring::TaskScore> scores, size_t budgets) {
  std::vector<const scoring::TaskScore*> all;
  for (const auto& score : scores) all.push_back(&score);
  std::string text = "mean over " + std::to_string(budgets) + " budgets:";
  std::string_view gap = " ";
  for (const auto& column : layout.block) {
    text += concat(gap, column.head, layout.text(mean(all, column), layout.width));
    gap = ", ";
  }
  return text + "\n";
}

/// Returns tables of all tasks and budgets of one reading and kind, which fit the page width.
std::string tables_of(const Layout& layout, std::span<const scoring::TaskScore> scores) {
  const auto tasks = scoring::distinct(scores, &scoring::TaskScore::task);
  const auto budgets = scoring::distinct(scores, &scoring::TaskScore::budget);
  size_t name_width = 4;
  for (const auto& task : tasks) name_width = std::max(name_width, std::min(task.size(), kMostTaskWidth));
  const size_t fitting =
      std::max<size_t>(1, (kPageWidth - std::min(kPageWidth, name_width + kTailWidth)) / kBlockPageWidth);
  const size_t tables = (budgets.size() + fitting - 1) / fitting;
  std::string text;
  for (size_t i = 0; i < tables; ++i) {
    const size_t first = i * budgets.size() / tables, end = (i + 1) * budgets.size() / tables;
    text += table(layout, scores, tasks, std::span(budgets).subspan(first, end - first), name_width) + "\n";
  }
  return budgets.size() > 1 ? text + mean_over_budgets(layout, scores, budgets.size()) : text;
}

std::string counted(const scoring::TaskScore& score) {
  if (score.questions == score.rows) return concat(score.task, ' ', score.rows);
  return concat(score.task, ' ', score.questions, " in ", score.rows, " rows");
}

/// Returns the numbers of questions and rows, wrapped to the page width: "questions: boolq 100, obqa 98 in 100 rows".
std::string counts(std::span<const scoring::TaskScore> scores) {
  std::vector<std::string> all;
  for (const auto& score : scores)
    if (auto text = counted(score); std::find(all.begin(), all.end(), text) == all.end())
      all.push_back(std::move(text));
  std::string text = "questions: ", gap;
  size_t used = text.size();
  for (const auto& one : all) {
    if (used + one.size() + 2 > kPageWidth) gap = ",\n  ", used = 0;
    text += gap + one;
    used += one.size() + 2;
    gap = ", ";
  }
  return text + '\n';
}

/// Returns a table of the first number of a kind, averaged over tasks: one row per way of serving, one column per
/// budget.
std::string served_table(const Layout& layout, std::span<const scoring::TaskScore> scores) {
  const auto served = scoring::distinct(scores, &scoring::TaskScore::served_by);
  const auto budgets = scoring::distinct(scores, &scoring::TaskScore::budget);
  if (served.size() < 2) return "";
  std::vector<std::string> titles = {concat(layout.block.front().head, ", mean over tasks")};
  for (const double budget : budgets) titles.push_back(concat("budget ", budget));
  TextGrid grid(titles);
  for (const auto by : served) {
    std::vector<std::string> row = {served_name(by)};
    for (const double budget : budgets) {
      std::vector<const scoring::TaskScore*> selected;
      for (const auto& score : scores)
        if (score.served_by == by && score.budget == budget) selected.push_back(&score);
      row.push_back(layout.text(mean(selected, layout.block.front()), 0));
    }
    grid.add(row);
  }
  return concat('\n', grid.text(),
                wrapped("exported: by programs that read the adapter, without what no adapter file holds "
                        "(docs/serving.md)"));
}

std::vector<scoring::TaskScore> of_the_run(std::span<const scoring::TaskScore> scores) {
  std::vector<scoring::TaskScore> own;
  std::copy_if(scores.begin(), scores.end(), std::back_inserter(own),
               [](const scoring::TaskScore& score) { return score.served_by == scoring::ServedBy::kRun; });
  return own;
}

std::string reading_title(const std::string& reading) {
  if (reading == "a") return "reading a: the adapter cut to the budget's rank, all experts\n";
  if (reading == "b") return "reading b: the whole adapter, as many experts as the budget allows\n";
  return "";
}

/// Returns a note if most answers cannot be read; "" otherwise.
std::string unreadable_note(std::span<const scoring::TaskScore> scores) {
  double invalid = 0;
  for (const auto& score : scores) invalid += score.kind == scoring::AnswerKind::kChoice ? score.invalid_rate : 0;
  if (invalid <= 0.5 * static_cast<double>(scores.size())) return "";
  return wrapped("most answers cannot be read (inv): acc says nothing yet; train longer, or compare lik");
}

/// Returns the tables of one kind, reading by reading; "" if there are no scores.
std::string kind_tables(const Layout& layout, std::span<const scoring::TaskScore> scores) {
  std::string text;
  std::vector<scoring::TaskScore> same, shown;
  for (const auto& reading : scoring::distinct(scores, &scoring::TaskScore::reading)) {
    same.clear();
    std::copy_if(scores.begin(), scores.end(), std::back_inserter(same), [&](const scoring::TaskScore& score) {
      return score.kind == layout.kind && score.reading == reading;
    });
    if (!same.empty())
      text += reading_title(reading) + tables_of(layout, of_the_run(same)) + served_table(layout, same);
    shown.insert(shown.end(), same.begin(), same.end());
  }
  return text.empty() ? text
                      : text + counts(shown) + wrapped(std::string(layout.legend)) + unreadable_note(of_the_run(shown));
}

}  // namespace

std::string served_name(scoring::ServedBy by) {
  if (by == scoring::ServedBy::kRun) return "in the run";
  return by == scoring::ServedBy::kTransformers ? "exported: transformers" : "exported: native gates";
}

std::string score_table(std::span<const scoring::TaskScore> scores) {
  std::vector<scoring::TaskScore> of_all;  // scores of single clients are in another table
  std::copy_if(scores.begin(), scores.end(), std::back_inserter(of_all), [](const auto& s) { return !s.client; });
  std::string text;
  for (const auto& layout : layouts()) {
    const auto tables = kind_tables(layout, of_all);
    text += (text.empty() || tables.empty() ? "" : "\n") + tables;
  }
  return text;
}

}  // namespace evenkeel::report
