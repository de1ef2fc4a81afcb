#include "report/client_scores.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/plain/number_text.h"
#include "scoring/measures.h"

namespace evenkeel::report {
namespace {

constexpr double kLast = -1e300;

using ClientKey = std::tuple<std::string, std::string, int64_t>;  // task, rank evaluation mode, client
ClientKey key_of(const scoring::TaskScore& score) { return {score.task, score.rank_eval_mode, score.client->id}; }

std::string who_of(const scoring::ClientOfScore& client) {
  return client.name ? concat(client.id, " (", *client.name, ")") : std::to_string(client.id);
}

std::string number_text(double number, const scoring::TaskScore& score) {
  return fixed(number, scoring::headline_of(score.kind).is_share ? 1 : 3);
}

std::string score_text(const std::optional<scoring::TaskScore>& score) {
  return score ? number_text(headline(*score), *score) : "-";
}

std::string gain_text(std::optional<double> gain, const std::optional<scoring::TaskScore>& score) {
  if (!gain || !score) return "-";
  return concat(*gain > 0 ? "+" : "", number_text(*gain, *score));
}

/// Returns the sort key: the gain, or the score if there is no gain. Clients without scores come last.
double order_of(const ClientResult& one) {
  if (const auto gain = one.gain()) return *gain;
  if (!one.own) return kLast;
  return (scoring::headline_of(one.own->kind).higher_is_better ? 1 : -1) * headline(*one.own);
}

void sort_results(std::vector<ClientResult>& results) {
  std::stable_sort(results.begin(), results.end(), [](const ClientResult& x, const ClientResult& y) {
    if (x.task != y.task || x.rank_eval_mode != y.rank_eval_mode)
      return std::tie(x.task, x.rank_eval_mode) < std::tie(y.task, y.rank_eval_mode);
    return order_of(x) > order_of(y);
  });
}

std::string mean_text(std::span<const ClientResult> results, std::optional<scoring::TaskScore> ClientResult::*score) {
  double sum = 0, count = 0;
  const scoring::TaskScore* any = nullptr;
  for (const auto& one : results)
    if (one.*score) any = &*(one.*score), sum += headline(*any), ++count;
  return any != nullptr ? number_text(sum / count, *any) : "-";
}

/// Returns the title of a task and rank evaluation mode, such as "files" or "files (b)".
std::string title_of(const ClientResult& one) {
  return one.rank_eval_mode.empty() ? one.task : concat(one.task, " (", one.rank_eval_mode, ")");
}

std::vector<std::vector<ClientResult>> by_title(std::span<const ClientResult> results) {
  std::vector<std::vector<ClientResult>> groups;
  for (const auto& one : results) {
    if (groups.empty() || title_of(groups.back()[0]) != title_of(one)) groups.emplace_back();
    groups.back().push_back(one);
  }
  return groups;
}

std::string summary_of(std::span<const ClientResult> results) {
  GainCounts counts;
  bool compared = false;
  for (const auto& one : results)
    if (const auto gain = one.gain()) counts.add(*gain, *one.own), compared = true;
  const auto now = mean_text(results, &ClientResult::own);
  if (!compared) return concat("mean on own rows ", now, ", on all rows ", mean_text(results, &ClientResult::all));
  return concat(counts.text(), "; mean on own rows ", mean_text(results, &ClientResult::before), " before, ", now,
                " now, on all rows ", mean_text(results, &ClientResult::all));
}

/// \param who  text before the title
Table table_of(std::string_view who, std::span<const ClientResult> results) {
  Table grid{.title = concat(who, title_of(results[0]), ": ", summary_of(results)),
             .head = {"client", "budget", "own before", "own now", "gain", "all rows", "own rows", "questions"}};
  for (const auto& one : results)
    grid.add({one.who, fixed(one.budget, 3), score_text(one.before), score_text(one.own),
              gain_text(one.gain(), one.own), score_text(one.all), one.own ? std::to_string(one.own->rows) : "-",
              one.own ? std::to_string(questions_of(*one.own)) : "-"});
  return grid;
}

/// Returns the titles of the measures by which clients are compared.
std::string headlines_text() {
  std::vector<std::string_view> titles;
  for (const auto kind : scoring::kAnswerKinds) titles.push_back(scoring::headline_of(kind).title);
  return join(titles, "; or ");
}

/// A client of the first run with the same client of the others.
struct Compared {
  const ClientResult* first;
  std::vector<const ClientResult*> others;

  std::optional<double> gain(size_t other) const {
    if (!others[other]) return std::nullopt;
    return gain_between(*first->own, *others[other]->own);
  }
};

/// Returns the clients in descending order of the gain of the last run.
std::vector<Compared> compared(std::span<const RunClientScores> runs) {
  std::vector<Compared> rows;
  for (const auto& one : runs[0].results) {
    Compared row{&one, {}};
    for (const auto& other : runs.subspan(1)) row.others.push_back(other.find(one));
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& x, const auto& y) {
    return x.gain(x.others.size() - 1).value_or(kLast) > y.gain(y.others.size() - 1).value_or(kLast);
  });
  return rows;
}

std::vector<std::string> titles_of(std::span<const RunClientScores> runs) {
  std::vector<std::string> titles = {"client", "budget", runs[0].label};
  for (const auto& run : runs.subspan(1)) titles.insert(titles.end(), {run.label, "gain"});
  titles.insert(titles.end(), {"own rows", "questions"});
  return titles;
}

/// Compares the scores on own rows of the first run with those of the others.
Table side_by_side(std::span<const RunClientScores> runs) {
  Table grid{.head = titles_of(runs)};
  std::vector<GainCounts> counts(runs.size() - 1);
  for (const auto& row : compared(runs)) {
    const auto& own = row.first->own;
    std::vector<std::string> cells = {row.first->who, fixed(row.first->budget, 3), score_text(own)};
    for (size_t i = 0; i < row.others.size(); ++i) {
      const auto gain = row.gain(i);
      if (gain) counts[i].add(*gain, *own);
      cells.insert(cells.end(), {row.others[i] ? score_text(row.others[i]->own) : "-", gain_text(gain, own)});
    }
    cells.insert(cells.end(), {std::to_string(own->rows), std::to_string(questions_of(*own))});
    grid.add(std::move(cells));
  }
  std::vector<std::string> pairs;
  for (size_t i = 0; i < counts.size(); ++i)
    pairs.push_back(concat(runs[i + 1].label, " against ", runs[0].label, ": ", counts[i].text()));
  grid.title = concat("own rows, ", join(pairs, "; "));
  return grid;
}

}  // namespace

int64_t questions_of(const scoring::TaskScore& score) {
  return std::max<int64_t>(1, score.questions > 0 ? score.questions : score.rows);
}

void GainCounts::add(double change, const scoring::TaskScore& score) {
  const bool is_share = scoring::headline_of(score.kind).is_share;
  const double one = is_share ? 100.0 / static_cast<double>(questions_of(score)) + 1e-9 : 0.0;
  ++(change > one ? gain : change < -one ? lose : within);
}

std::string GainCounts::text() const {
  return concat(gain, " gain, ", lose, " lose, ", within, " within one question");
}

const ClientResult* RunClientScores::find(const ClientResult& of) const {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&](const ClientResult& one) { return one.id == of.id && one.task == of.task; });
  return found == results.end() ? nullptr : &*found;
}

std::vector<RunClientScores> run_client_scores(std::span<const records::RunRecords> runs) {
  std::vector<RunClientScores> all;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    std::map<std::string, RunClientScores> by_mode;
    for (auto& one : client_results(run.evaluations)) {
      if (!one.own) continue;
      auto& scores = by_mode[one.rank_eval_mode];
      scores.label = one.rank_eval_mode.empty() ? run.label : concat(run.label, " (", one.rank_eval_mode, ")");
      scores.run = i;
      scores.results.push_back(std::move(one));
    }
    for (auto& [mode, scores] : by_mode) all.push_back(std::move(scores));
  }
  return all;
}

double headline(const scoring::TaskScore& score) {
  const auto& measure = scoring::headline_of(score.kind);
  return (measure.is_share ? 100 : 1) * measure.of(score).value_or(0);
}

double gain_between(const scoring::TaskScore& from, const scoring::TaskScore& to) {
  const double more = headline(to) - headline(from);
  return scoring::headline_of(to.kind).higher_is_better ? more : -more;
}

std::optional<double> ClientResult::gain() const {
  if (!before || !own) return std::nullopt;
  return gain_between(*before, *own);
}

std::vector<ClientResult> client_results(std::span<const fed::EvaluationRecord> evaluations) {
  std::map<ClientKey, ClientResult> found;
  int64_t last = -1;
  for (const auto& evaluation : evaluations) last = std::max(last, evaluation.round);
  for (const auto& [round, method, score] : evaluations) {
    if (!score.client || (round != 0 && round != last)) continue;
    auto& one = found[key_of(score)];
    one.id = score.client->id;
    one.who = who_of(*score.client);
    one.task = score.task;
    one.rank_eval_mode = score.rank_eval_mode;
    one.budget = score.budget;
    const bool own = score.client->rows == scoring::RowsOf::kOwn;
    if (round == 0 && own) one.before = score;
    if (round == last) (own ? one.own : one.all) = score;
  }
  std::vector<ClientResult> results;
  for (auto& [key, one] : found) results.push_back(std::move(one));
  if (last == 0)
    for (auto& one : results) one.before.reset();
  sort_results(results);
  return results;
}

std::vector<std::string> clients_summary(const records::RunRecords& run) {
  std::vector<std::string> lines;
  for (const auto& results : by_title(client_results(run.evaluations)))
    lines.push_back(
        concat(results.size(), " clients at their own budgets, ", title_of(results[0]), ": ", summary_of(results)));
  return lines;
}

std::vector<Table> client_scores_tables(std::span<const records::RunRecords> runs) {
  std::vector<Table> tables{{.title = concat("clients at their own budgets: ", headlines_text())}};
  for (const auto& run : runs) {
    const auto results = client_results(run.evaluations);
    if (results.empty())
      tables.push_back({.title = concat(run.label, ": nothing is scored per client (evaluate.per_client)")});
    for (const auto& group : by_title(results)) tables.push_back(table_of(run.label + ", ", group));
  }
  const auto scores = run_client_scores(runs);
  if (runs.size() > 1 && scores.size() > 1) tables.push_back(side_by_side(scores));
  return tables;
}

std::vector<Table> client_scores_tables(std::span<const scoring::TaskScore> scores) {
  std::vector<fed::EvaluationRecord> evaluations;
  for (const auto& score : scores) evaluations.push_back({1, "", score});
  std::vector<Table> tables;
  for (const auto& results : by_title(client_results(evaluations)))
    tables.push_back(table_of("clients at their own budgets, ", results));
  return tables;
}

}  // namespace evenkeel::report
