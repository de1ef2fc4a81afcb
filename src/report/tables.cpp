#include "report/tables.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/plain/number_text.h"
#include "comparison/traffic.h"
#include "records/run_costs.h"
#include "report/client_scores.h"
#include "report/measure_tables.h"
#include "report/privacy_table.h"
#include "report/score_cells.h"
#include "report/time_table.h"

namespace evenkeel::report {
namespace {

std::string percent(double share) { return fixed(100 * share, 1); }

std::vector<Table> measure_tables_or_remark(std::span<const records::RunRecords> runs,
                                            const scoring::Measure& measure) {
  auto all = measure_tables(runs, measure);
  if (all.empty()) all.push_back({.title = concat(measure.title, ": ", what_there_is(runs))});
  return all;
}

template <typename T>
double sum_of(const records::RunRecords& run, T fed::RoundMeasures::*member) {
  double sum = 0;
  for (const auto& round : run.rounds) sum += static_cast<double>(round.*member);
  return sum;
}

using Point = std::tuple<std::string, double>;  // task, budget

/// The scores that the runs themselves have of one measure, and the tasks and budgets that all of them have.
struct Overall {
  const scoring::Measure* measure;
  std::vector<Scored> scored;  ///< one per run, kind and rank evaluation mode
  std::set<Point> common;
  bool alike = true;  ///< all have the same tasks and budgets
};

std::set<Point> points_of(std::span<const Scored> all, const records::RunRecords& run,
                          const scoring::Measure& measure) {
  std::set<Point> points;
  for (const auto& one : all)
    for (const auto& score : one.scores)
      if (one.run == &run && measure.of(score)) points.emplace(score.task, score.budget);
  return points;
}

Overall overall_scores(std::span<const records::RunRecords> runs, const scoring::Measure& measure) {
  Overall all{.measure = &measure, .scored = {}, .common = {}};
  for (const auto kind : scoring::kAnswerKinds)
    for (auto& one : scored(runs, kind))
      if (one.scores[0].served_by == scoring::ServedBy::kRun) all.scored.push_back(std::move(one));
  bool first = true;
  for (const auto& run : runs) {
    const auto points = points_of(all.scored, run, measure);
    if (points.empty()) continue;
    if (first) all.common = points;
    all.alike = all.alike && points == all.common;
    std::erase_if(all.common, [&](const auto& point) { return !points.contains(point); });
    first = false;
  }
  return all;
}

/// Returns the mean over the tasks and budgets that all runs have, in a rank evaluation mode of a run; "-" if there are
/// none.
std::string mean_of_common(const Overall& all, const records::RunRecords& run, const std::string& mode) {
  std::vector<const scoring::TaskScore*> scores;
  for (const auto& one : all.scored)
    for (const auto& score : one.scores)
      if (one.run == &run && score.rank_eval_mode == mode && all.common.contains({score.task, score.budget}))
        scores.push_back(&score);
  return measure_cell(mean_of(scores, *all.measure), *all.measure);
}

/// Returns the rank evaluation modes of a run; {""} if it has none.
std::vector<std::string> modes_of(const records::RunRecords& run) {
  auto scores = run.scores(run.last_evaluated());
  std::erase_if(scores, [](const auto& score) { return score.served_by != scoring::ServedBy::kRun; });
  auto modes = scoring::distinct(scores, &scoring::TaskScore::rank_eval_mode);
  if (modes.empty()) modes.emplace_back();
  return modes;
}

std::string loss_cell(const fed::RoundMeasures& of) { return of.loss ? fixed(*of.loss, 4) : "-"; }

std::string cost_cell(const std::optional<double>& cost) { return cost ? compact(*cost) : "-"; }

/// Returns `text`, or a dash where the round does not tell the work of all its clients.
std::string told(const fed::RoundRecord& round, std::string text) {
  return records::withholds_work(round) ? "-" : std::move(text);
}

/// Returns the columns of a run that do not depend on its rank evaluation mode, without its label.
std::vector<std::string> run_cells(const records::RunRecords& run) {
  const bool trained = !run.rounds.empty();
  const auto cost = records::cost_of(run);
  return {run.method,
          std::to_string(run.seed),
          std::to_string(run.rounds.size()),
          trained ? loss_cell(run.rounds.back()) : "-",
          cost_cell(cost.tokens),
          cost_cell(cost.bytes_up),
          cost_cell(cost.bytes_down),
          cost_cell(cost.flops),
          trained ? told(run.rounds.back(), fixed(run.rounds.back().experts_per_token, 2)) : "-"};
}

/// Returns the means of every measure that some run has.
std::vector<Overall> overall_of_all(std::span<const records::RunRecords> runs) {
  std::vector<scoring::TaskScore> scores;
  for (const auto& run : runs)
    for (auto& score : run.scores(run.last_evaluated())) scores.push_back(std::move(score));
  std::vector<Overall> all;
  for (const auto* measure : scoring::measures_of(scores)) all.push_back(overall_scores(runs, *measure));
  return all;
}

Table runs_table(std::span<const records::RunRecords> runs) {
  Table table{.head = {"run", "method", "seed", "rounds", "last loss", "tokens", "bytes up", "bytes down", "FLOPs",
                       "experts/token"}};
  const auto means = overall_of_all(runs);
  for (const auto& one : means) table.head.push_back(head_of(*one.measure));
  for (const auto& run : runs)
    for (const auto& mode : modes_of(run)) {
      auto cells = run_cells(run);
      cells.insert(cells.begin(), label_of(run, mode, scoring::ServedBy::kRun));
      for (const auto& one : means) cells.push_back(mean_of_common(one, run, mode));
      table.add(std::move(cells));
    }
  const bool alike = std::all_of(means.begin(), means.end(), [](const Overall& one) { return one.alike; });
  table.title = concat("runs; measures are means over ",
                       alike ? "tasks and budgets" : "the tasks and budgets that all runs have");
  return table;
}

double dead_experts(const fed::ExpertUse& use) {
  return std::accumulate(use.dead_experts.begin(), use.dead_experts.end(), 0.0);
}

Table rounds_table(std::span<const records::RunRecords> runs) {
  Table grid{
      .title = "rounds; entropy and Gini of expert utilisation, means over layers; dead: experts without a token",
      .head = {"run", "round", "loss", "tokens", "bytes up", "bytes down", "FLOPs", "experts/token", "entropy", "Gini",
               "dead"},
      .keys = 2};
  for (const auto& run : runs)
    for (const auto& round : run.rounds) {
      const auto& use = round.experts;
      grid.add({run.label, std::to_string(round.round), loss_cell(round), told(round, compact(round.tokens)),
                compact(round.bytes_up), compact(round.bytes_down), told(round, compact(round.flops)),
                told(round, fixed(round.experts_per_token, 2)), use ? fixed(use->entropy_mean, 4) : "-",
                use ? fixed(use->gini_mean, 4) : "-", use ? fixed(dead_experts(*use), 0) : "-"});
    }
  return grid;
}

/// Returns the bytes of the whole run by content.
std::map<std::string, double> traffic(const records::RunRecords& run, fed::Traffic fed::RoundMeasures::*parts) {
  std::map<std::string, double> sum;
  for (const auto& round : run.rounds)
    for (const auto& [content, bytes] : round.*parts) sum[content] += static_cast<double>(bytes);
  return sum;
}

Table traffic_table(std::span<const records::RunRecords> runs) {
  Table grid{.title = "traffic of training; bytes of all rounds and clients by content, shares in percent",
             .head = {"run", "content", "bytes up", "share", "bytes down", "share"},
             .keys = 2};
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
    if (run.scoring)
      grid.add({run.label, comparison::kScoresOfNodes, compact(run.scoring->bytes_up), "-",
                compact(run.scoring->bytes_down), "-"});
  }
  return grid;
}

/// Returns `text`, or a dash where the client's measures are hidden in the sum of its round, or withheld to protect its
/// rows.
std::string known(const fed::ClientOfRound& client, std::string text) {
  return client.withheld || (client.privacy && client.privacy->withheld) ? "-" : std::move(text);
}

/// Returns a dash for the seconds of a client that does not tell them: 0.
std::string seconds_cell(const fed::ClientOfRound& client) {
  return client.seconds > 0 ? fixed(client.seconds, 2) : "-";
}

std::string count_cell(const fed::ClientOfRound& client, int64_t count) {
  return client.of_unknown_size ? "-" : std::to_string(count);
}

Table clients_table(std::span<const records::RunRecords> runs) {
  Table grid{.title = "clients of the last round; seconds: measured while they trained",
             .head = {"run", "client", "budget", "K", "rank", "rows", "steps", "loss", "bytes up", "bytes down",
                      "FLOPs", "seconds", "experts/token"},
             .keys = 2};
  for (const auto& run : runs) {
    if (run.rounds.empty()) continue;
    for (const auto& client : run.rounds.back().clients)
      grid.add({run.label, client.name ? concat(client.id, " (", *client.name, ")") : std::to_string(client.id),
                fixed(client.budget, 3), std::to_string(client.top_k), std::to_string(client.rank),
                count_cell(client, client.examples), count_cell(client, client.steps), known(client, loss_cell(client)),
                compact(client.bytes_up), compact(client.bytes_down), known(client, compact(client.flops)),
                seconds_cell(client), known(client, fixed(client.experts_per_token, 2))});
  }
  return grid;
}

/// Returns the scores of all clients if they fit a screen, else summaries.
std::vector<Table> clients_part(std::span<const records::RunRecords> runs) {
  constexpr size_t kScreen = 40;
  size_t rows = 0;
  std::vector<Table> summaries;
  for (const auto& run : runs) {
    rows += client_results(run.evaluations).size();
    for (auto& line : clients_summary(run)) summaries.push_back({.title = concat(run.label, ": ", line)});
  }
  if (rows == 0) return {};
  if (rows <= kScreen) return client_scores_tables(runs);
  summaries.push_back({.title = "client by client: --table client-scores"});
  return summaries;
}

void append(std::vector<Table>& all, std::vector<Table> more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

}  // namespace

std::vector<std::string_view> table_names() {
  std::vector<std::string_view> all = {"runs"};
  for (const auto& measure : scoring::measures()) all.push_back(measure.name);
  all.insert(all.end(), {"rounds", "time", "clients", "client-scores", "traffic", "privacy"});
  return all;
}

std::vector<Table> tables(std::span<const records::RunRecords> runs, std::string_view name) {
  if (name == "runs") return {runs_table(runs)};
  if (name == "rounds") return {rounds_table(runs)};
  if (name == "time") return time_tables(runs);
  if (name == "clients") return {clients_table(runs)};
  if (name == "client-scores") return client_scores_tables(runs);
  if (name == "traffic") return {traffic_table(runs)};
  if (name == "privacy") return {privacy_table(runs, true)};
  for (const auto& measure : scoring::measures())
    if (measure.name == name) return measure_tables_or_remark(runs, measure);
  fail(kConfig, "--table is ", name, ", allowed: ", join(table_names()));
}

std::vector<Table> default_tables(std::span<const records::RunRecords> runs) {
  std::vector<Table> all{runs_table(runs)};
  for (const auto& measure : scoring::measures()) append(all, measure_tables(runs, measure));
  if (all.size() == 1) all.push_back({.title = what_there_is(runs)});
  append(all, clients_part(runs));
  if (auto privacy = privacy_table(runs, false); !privacy.rows.empty()) all.push_back(std::move(privacy));
  return all;
}

}  // namespace evenkeel::report
