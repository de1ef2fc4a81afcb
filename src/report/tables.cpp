#include "report/tables.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/plain/number_text.h"
#include "report/client_scores.h"
#include "report/score_table.h"
#include "report/text_grid.h"
#include "report/time_table.h"

namespace evenkeel::report {
namespace {

std::string percent(double share) { return fixed(100 * share, 1); }

std::string budget_title(double budget) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", budget);
  return text.data();
}

/// A run's scores at its last evaluated round, of one kind, one reading (empty except for rank methods) and one way of
/// serving.
struct Scored {
  const records::RunRecords* run;
  std::string label;
  std::vector<scoring::TaskScore> scores;
  std::vector<double> budgets;
};

/// Returns the label of a column group, such as "demo (b, exported: native gates)".
std::string label_of(const records::RunRecords& run, const std::string& reading, scoring::ServedBy by) {
  std::string aspect = reading;
  if (by != scoring::ServedBy::kRun) aspect += (aspect.empty() ? "" : ", ") + served_name(by);
  return aspect.empty() ? run.label : concat(run.label, " (", aspect, ")");
}

std::vector<Scored> scored(std::span<const records::RunRecords> runs, scoring::AnswerKind kind) {
  std::vector<Scored> all;
  for (const auto& run : runs) {
    auto every = run.scores(run.last_evaluated());
    std::erase_if(every, [&](const scoring::TaskScore& s) { return s.kind != kind; });
    for (const auto by : scoring::distinct(every, &scoring::TaskScore::served_by))
      for (const auto& reading : scoring::distinct(every, &scoring::TaskScore::reading)) {
        std::vector<scoring::TaskScore> scores;
        std::copy_if(every.begin(), every.end(), std::back_inserter(scores),
                     [&](const scoring::TaskScore& s) { return s.reading == reading && s.served_by == by; });
        if (scores.empty()) continue;
        auto budgets = scoring::distinct(scores, &scoring::TaskScore::budget);
        std::sort(budgets.begin(), budgets.end());
        all.push_back({&run, label_of(run, reading, by), std::move(scores), std::move(budgets)});
      }
  }
  return all;
}

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

/// Selects a number of a score; nothing if it was not measured.
using Measure = std::optional<double> (*)(const scoring::TaskScore&);

template <auto kMember>
std::optional<double> measure(const scoring::TaskScore& score) {
  return score.*kMember;
}

std::optional<double> mean(const Scored& run, std::span<const std::string> tasks, double budget, Measure measured) {
  double sum = 0, count = 0;
  for (const auto& task : tasks) {
    const auto* score = find(run, task, budget);
    const auto value = score != nullptr ? measured(*score) : std::nullopt;
    if (value) sum += *value, ++count;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::string percent_cell(std::optional<double> share) { return share ? percent(*share) : "-"; }

/// Formats a number with four digits.
std::string plain_cell(std::optional<double> value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value.value_or(0));
  return value ? text.data() : "-";
}

/// Returns the chance level or majority level of a task, from the first run that has the task.
std::optional<double> level(std::span<const Scored> runs, const std::string& task, Measure measured) {
  for (const auto& run : runs)
    for (const auto& score : run.scores)
      if (score.task == task) return measured(score);
  return std::nullopt;
}

std::optional<double> mean_level(std::span<const Scored> runs, std::span<const std::string> tasks, Measure measured) {
  double sum = 0;
  for (const auto& task : tasks) sum += level(runs, task, measured).value_or(0);
  return tasks.empty() ? std::nullopt : std::optional(sum / static_cast<double>(tasks.size()));
}

struct TaskTable {
  std::string_view name, title;
  scoring::AnswerKind kind;
  Measure measured;
  std::string (*cell)(std::optional<double>) = percent_cell;
};

void add_cells(std::vector<std::string>& row, const Scored& run, const std::string& task, const TaskTable& table) {
  for (const double budget : run.budgets) {
    const auto* score = find(run, task, budget);
    row.push_back(table.cell(score != nullptr ? table.measured(*score) : std::nullopt));
  }
}

/// A baseline of guessing. (Tasks with free text have none.)
struct Level {
  std::string_view title;
  Measure measured;
};
constexpr std::array kLevels{Level{"chance", measure<&scoring::TaskScore::chance>},
                             Level{"majority", measure<&scoring::TaskScore::majority>}};
std::span<const Level> levels_of(scoring::AnswerKind kind) {
  return std::span(kLevels).first(kind == scoring::AnswerKind::kChoice ? kLevels.size() : 0);
}

/// Returns the numbers of rows and questions of a task, from the first run that has the task.
std::array<std::string, 2> counts(std::span<const Scored> runs, const std::string& task) {
  for (const auto& run : runs)
    for (const auto& score : run.scores)
      if (score.task == task)
        return {std::to_string(score.rows), score.questions > 0 ? std::to_string(score.questions) : "-"};
  return {"-", "-"};
}

constexpr std::array kTaskTables{
    TaskTable{"accuracy", "accuracy, percent of rows", scoring::AnswerKind::kChoice,
              measure<&scoring::TaskScore::accuracy>},
    TaskTable{"invalid", "answers that cannot be read, percent of rows", scoring::AnswerKind::kChoice,
              measure<&scoring::TaskScore::invalid_rate>},
    TaskTable{"valid", "accuracy among readable answers, percent of rows", scoring::AnswerKind::kChoice,
              measure<&scoring::TaskScore::accuracy_valid>},
    TaskTable{"likelihood", "accuracy by likelihood of the allowed answers, percent of rows",
              scoring::AnswerKind::kChoice, measure<&scoring::TaskScore::accuracy_likelihood>},
    TaskTable{"exact-match", "free text: exact match, percent of rows", scoring::AnswerKind::kText,
              measure<&scoring::TaskScore::exact_match>},
    TaskTable{"f1", "free text: F1 of words, percent, mean over rows", scoring::AnswerKind::kText,
              measure<&scoring::TaskScore::f1>},
    TaskTable{"bert-score", "free text: BERTScore F1, percent, mean over rows", scoring::AnswerKind::kText,
              measure<&scoring::TaskScore::bert_score>},
    TaskTable{"empty", "free text: empty answers, percent of rows", scoring::AnswerKind::kText,
              measure<&scoring::TaskScore::empty_rate>},
    TaskTable{"nll", "negative log-likelihood of a token of the answers", scoring::AnswerKind::kLikelihood,
              measure<&scoring::TaskScore::nll>, plain_cell},
    TaskTable{"perplexity", "perplexity of the answers", scoring::AnswerKind::kLikelihood,
              measure<&scoring::TaskScore::perplexity>, plain_cell}};

/// Returns a table with several runs side by side.
std::string task_grid(std::span<const Scored> runs, std::span<const std::string> tasks, const TaskTable& table) {
  std::vector<std::string> titles = {"task"}, means = {"mean"};
  for (const auto& run : runs)
    for (const double budget : run.budgets) {
      titles.push_back(budget_title(budget));
      means.push_back(table.cell(mean(run, tasks, budget, table.measured)));
    }
  const size_t last = titles.size();
  for (const auto& level : levels_of(table.kind)) {
    titles.emplace_back(level.title);
    means.push_back(percent_cell(mean_level(runs, tasks, level.measured)));
  }
  for (const auto* title : {"rows", "questions"}) {
    titles.emplace_back(title);
    means.emplace_back();
  }
  TextGrid grid(titles);
  size_t column = 1;
  for (const auto& run : runs) {
    grid.group(column, column + run.budgets.size(), run.label);
    column += run.budgets.size();
  }
  grid.group(last, titles.size(), "");
  for (const auto& task : tasks) {
    std::vector<std::string> row = {task};
    for (const auto& run : runs) add_cells(row, run, task, table);
    for (const auto& one : levels_of(table.kind)) row.push_back(percent_cell(level(runs, task, one.measured)));
    for (auto& count : counts(runs, task)) row.push_back(std::move(count));
    grid.add(row);
  }
  grid.add(means);
  return grid.text();
}

std::string_view what_is_asked(scoring::AnswerKind kind) {
  if (kind == scoring::AnswerKind::kText) return "free text";
  return kind == scoring::AnswerKind::kChoice ? "choices" : "likelihoods";
}

/// Returns a text that says which kinds of tasks were evaluated instead of `wanted`.
std::string what_there_is(std::span<const records::RunRecords> runs, scoring::AnswerKind wanted) {
  std::vector<std::string_view> kinds, names;
  for (const auto kind : {scoring::AnswerKind::kChoice, scoring::AnswerKind::kText, scoring::AnswerKind::kLikelihood}) {
    if (kind == wanted || scored(runs, kind).empty()) continue;
    kinds.push_back(what_is_asked(kind));
    for (const auto& entry : kTaskTables)
      if (entry.kind == kind) names.push_back(entry.name);
  }
  if (kinds.empty()) return "nothing is evaluated yet";
  return concat("the tasks that were evaluated ask for ", join(kinds, " and "), "; there are: ", join(names));
}

std::string task_table(std::span<const records::RunRecords> runs, const TaskTable& table) {
  const auto all = scored(runs, table.kind);
  if (all.empty()) return wrapped(concat(table.title, ": ", what_there_is(runs, table.kind)));
  return wrapped(concat(table.title, ", by budget, after the last evaluated round")) +
         task_grid(all, all_tasks(all), table);
}

template <typename T>
double sum_of(const records::RunRecords& run, T fed::RoundMeasures::*member) {
  double sum = 0;
  for (const auto& round : run.rounds) sum += static_cast<double>(round.*member);
  return sum;
}

/// The scores of one kind that the runs themselves have, and what is common to all: tasks and budgets.
struct Overall {
  std::vector<Scored> scored;  ///< one per run and rank evaluation mode
  std::set<std::pair<std::string, double>> common;
  bool alike = true;  ///< all have the same tasks and budgets
};

std::set<std::pair<std::string, double>> points_of(const Scored& run) {
  std::set<std::pair<std::string, double>> points;
  for (const auto& score : run.scores) points.emplace(score.task, score.budget);
  return points;
}

Overall overall_scores(std::span<const records::RunRecords> runs, scoring::AnswerKind kind) {
  Overall all{.scored = scored(runs, kind), .common = {}};
  std::erase_if(all.scored, [](const Scored& run) { return run.scores[0].served_by != scoring::ServedBy::kRun; });
  if (all.scored.empty()) return all;
  all.common = points_of(all.scored[0]);
  for (const auto& run : all.scored) {
    const auto points = points_of(run);
    all.alike = all.alike && points == all.common;
    std::erase_if(all.common, [&](const auto& point) { return !points.contains(point); });
  }
  return all;
}

/// Returns the mean over the tasks and budgets that all runs have, in a rank evaluation mode of a run; "-" if there are
/// none.
std::string mean_of_common(const Overall& all, const records::RunRecords& run, const std::string& reading,
                           Measure measured) {
  double sum = 0, count = 0;
  for (const auto& one : all.scored)
    for (const auto& score : one.scores)
      if (one.run == &run && score.reading == reading && all.common.contains({score.task, score.budget}))
        sum += measured(score).value_or(0), ++count;
  return count > 0 ? percent(sum / count) : "-";
}

/// Returns the rank evaluation modes of a run; {""} if it has none.
std::vector<std::string> readings_of(const records::RunRecords& run) {
  auto scores = run.scores(run.last_evaluated());
  std::erase_if(scores, [](const auto& score) { return score.served_by != scoring::ServedBy::kRun; });
  auto readings = scoring::distinct(scores, &scoring::TaskScore::reading);
  if (readings.empty()) readings.emplace_back();
  return readings;
}

/// Returns the columns of a run that do not depend on its rank evaluation mode, without its label.
std::vector<std::string> run_cells(const records::RunRecords& run) {
  const bool trained = !run.rounds.empty();
  return {run.method,
          std::to_string(run.seed),
          std::to_string(run.rounds.size()),
          trained ? fixed(run.rounds.back().loss, 4) : "-",
          compact(sum_of(run, &fed::RoundMeasures::tokens)),
          compact(sum_of(run, &fed::RoundMeasures::bytes_up)),
          compact(sum_of(run, &fed::RoundMeasures::bytes_down)),
          compact(sum_of(run, &fed::RoundMeasures::flops)),
          trained ? fixed(run.rounds.back().experts_per_token, 2) : "-"};
}

std::string runs_table(std::span<const records::RunRecords> runs) {
  TextGrid grid({"run", "method", "seed", "rounds", "last loss", "tokens", "bytes up", "bytes down", "FLOPs",
                 "experts/token", "acc", "F1"});
  const auto choices = overall_scores(runs, scoring::AnswerKind::kChoice),
             texts = overall_scores(runs, scoring::AnswerKind::kText);
  for (const auto& run : runs)
    for (const auto& reading : readings_of(run)) {
      auto cells = run_cells(run);
      cells.insert(cells.begin(), label_of(run, reading, scoring::ServedBy::kRun));
      cells.push_back(mean_of_common(choices, run, reading, measure<&scoring::TaskScore::accuracy>));
      cells.push_back(mean_of_common(texts, run, reading, measure<&scoring::TaskScore::f1>));
      grid.add(cells);
    }
  const auto over = choices.alike && texts.alike ? "tasks and budgets" : "the tasks and budgets that all runs have";
  return wrapped(concat("runs; acc: accuracy, F1: of words in free text, means over ", over, ", percent")) +
         grid.text();
}

double dead_experts(const fed::ExpertUse& use) {
  return std::accumulate(use.dead_experts.begin(), use.dead_experts.end(), 0.0);
}

std::string rounds_table(std::span<const records::RunRecords> runs) {
  TextGrid grid(
      {"run", "round", "loss", "tokens", "bytes up", "bytes down", "FLOPs", "experts/token", "entropy", "Gini", "dead"},
      2);
  for (const auto& run : runs)
    for (const auto& round : run.rounds) {
      const auto& use = round.experts;
      grid.add({run.label, std::to_string(round.round), fixed(round.loss, 4), compact(round.tokens),
                compact(round.bytes_up), compact(round.bytes_down), compact(round.flops),
                fixed(round.experts_per_token, 2), use ? fixed(use->entropy_mean, 4) : "-",
                use ? fixed(use->gini_mean, 4) : "-", use ? fixed(dead_experts(*use), 0) : "-"});
    }
  return wrapped("rounds; entropy and Gini of expert utilisation, means over layers; dead: experts without a token") +
         grid.text();
}

/// Returns the bytes of the whole run by content.
std::map<std::string, double> traffic(const records::RunRecords& run, fed::Traffic fed::RoundMeasures::*parts) {
  std::map<std::string, double> sum;
  for (const auto& round : run.rounds)
    for (const auto& [content, bytes] : round.*parts) sum[content] += static_cast<double>(bytes);
  return sum;
}

std::string traffic_table(std::span<const records::RunRecords> runs) {
  TextGrid grid({"run", "content", "bytes up", "share", "bytes down", "share"}, 2);
  for (const auto& run : runs) {
    const auto up = traffic(run, &fed::RoundMeasures::bytes_up_parts),
               down = traffic(run, &fed::RoundMeasures::bytes_down_parts);
    const double all_up = sum_of(run, &fed::RoundMeasures::bytes_up),
                 all_down = sum_of(run, &fed::RoundMeasures::bytes_down);
    std::set<std::string> contents;
    for (const auto* parts : {&up, &down})
      for (const auto& [content, bytes] : *parts) contents.insert(content);
    const auto cells = [](const auto& parts, const std::string& content, double all) -> std::array<std::string, 2> {
      const auto found = parts.find(content);
      if (found == parts.end()) return {"-", "-"};
      return {compact(found->second), percent(found->second / all)};
    };
    for (const auto& content : contents) {
      const auto [sent_up, share_up] = cells(up, content, all_up);
      const auto [sent_down, share_down] = cells(down, content, all_down);
      grid.add({run.label, content, sent_up, share_up, sent_down, share_down});
    }
    grid.add({run.label, "all", compact(all_up), percent(1), compact(all_down), percent(1)});
  }
  return concat("traffic; bytes of all rounds and clients by content, shares in percent\n", grid.text());
}

std::string clients_table(std::span<const records::RunRecords> runs) {
  TextGrid grid({"run", "client", "budget", "K", "rank", "rows", "steps", "loss", "bytes up", "bytes down", "FLOPs",
                 "seconds", "experts/token"},
                2);
  for (const auto& run : runs) {
    if (run.rounds.empty()) continue;
    for (const auto& client : run.rounds.back().clients)
      grid.add({run.label, client.name ? concat(client.id, " (", *client.name, ")") : std::to_string(client.id),
                fixed(client.budget, 3), std::to_string(client.top_k), std::to_string(client.rank),
                std::to_string(client.examples), std::to_string(client.steps), fixed(client.loss, 4),
                compact(client.bytes_up), compact(client.bytes_down), compact(client.flops), fixed(client.seconds, 2),
                fixed(client.experts_per_token, 2)});
  }
  return concat("clients of the last round; seconds: measured while they trained\n", grid.text());
}

/// Returns the scores of all clients if they fit a screen, else summaries.
std::string clients_part(std::span<const records::RunRecords> runs) {
  constexpr size_t kScreen = 40;
  size_t rows = 0;
  std::string summaries;
  for (const auto& run : runs) {
    rows += client_results(run.evaluations).size();
    if (const auto summary = clients_summary(run); !summary.empty())
      summaries += wrapped(concat(run.label, ": ", summary));
  }
  if (rows == 0) return "";
  if (rows <= kScreen) return concat('\n', client_scores_table(runs));
  return concat('\n', summaries, "client by client: --table client-scores\n");
}

/// Returns true if some run has the measure. Before the first evaluation, the measures of choices are shown.
bool is_shown(std::span<const records::RunRecords> runs, const TaskTable& table) {
  const auto all = scored(runs, table.kind);
  const bool measured = std::any_of(all.begin(), all.end(), [&](const Scored& run) {
    return std::any_of(run.scores.begin(), run.scores.end(),
                       [&](const auto& s) { return table.measured(s).has_value(); });
  });
  return measured || (table.kind == scoring::AnswerKind::kChoice &&
                      std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.last_evaluated() < 0; }));
}

}  // namespace

std::vector<std::string_view> table_names() {
  std::vector<std::string_view> all = {"runs"};
  for (const auto& entry : kTaskTables) all.push_back(entry.name);
  all.insert(all.end(), {"rounds", "time", "clients", "client-scores", "traffic"});
  return all;
}

std::string table(std::span<const records::RunRecords> runs, std::string_view name) {
  if (name == "runs") return runs_table(runs);
  if (name == "rounds") return rounds_table(runs);
  if (name == "time") return time_table(runs);
  if (name == "clients") return clients_table(runs);
  if (name == "client-scores") return client_scores_table(runs);
  if (name == "traffic") return traffic_table(runs);
  for (const auto& entry : kTaskTables)
    if (entry.name == name) return task_table(runs, entry);
  fail(kConfig, "--table is ", name, ", allowed: ", join(table_names()));
}

std::string default_tables(std::span<const records::RunRecords> runs) {
  std::string text = runs_table(runs);
  for (const auto& entry : kTaskTables)
    if (is_shown(runs, entry)) text += concat('\n', task_table(runs, entry));
  return text + clients_part(runs);
}

}  // namespace evenkeel::report
