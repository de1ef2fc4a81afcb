#include "report/page_data.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/plain/error.h"
#include "comparison/comparison.h"
#include "comparison/curves.h"
#include "comparison/differences.h"
#include "records/run_costs.h"
#include "report/page_parts.h"
#include "report/score_table.h"

namespace evenkeel::report {
namespace page {

double rounded(double number, int digits) {
  if (number == 0 || !std::isfinite(number)) return number;
  const double unit = std::pow(10.0, digits - 1 - std::floor(std::log10(std::abs(number))));
  return std::isfinite(unit) ? std::round(number * unit) / unit : number;
}

OrderedJson number(const std::optional<double>& value) { return value ? OrderedJson(rounded(*value)) : OrderedJson(); }

void add(OrderedJson& json, const char* key, const std::optional<double>& value) {
  if (value) json[key] = rounded(*value);
}

void add(OrderedJson& json, const std::optional<comparison::Interval>& interval) {
  if (!interval) return;
  json["low"] = rounded(interval->low);
  json["high"] = rounded(interval->high);
}

namespace {

/// Returns the K of each budget; none if the scores at a budget differ in K or are those of a dense model.
std::map<double, int64_t> common_top_ks(std::span<const records::RunRecords> runs) {
  std::map<double, int64_t> top_ks;
  for (const auto& run : runs)
    for (const auto& [round, method, score] : run.evaluations)
      if (!score.client && (score.top_k == 0 || top_ks.emplace(score.budget, score.top_k).first->second != score.top_k))
        return {};
  return top_ks;
}

}  // namespace

Source::Source(const comparison::StudyRuns& study_of_page) : study(study_of_page) {
  for (const auto& run : study.runs) {
    if (!run.records) continue;
    runs.push_back(*run.records);
    arm_of_run.push_back(index(run.arm));
  }
  top_ks = common_top_ks(runs);
}

size_t Source::index(const std::string& arm) const {
  return static_cast<size_t>(std::find(study.arms.begin(), study.arms.end(), arm) - study.arms.begin());
}

std::string Source::name(const std::string& arm, const std::string& rank_eval_mode) const {
  const bool is_reference = arm == study.reference && study.arms.size() > 1;
  return concat(arm, rank_eval_mode.empty() ? "" : concat(" (", rank_eval_mode, ")"),
                is_reference ? " (reference)" : "");
}

std::string Source::name(double budget) const {
  const auto top_k = top_ks.find(budget);
  return top_k == top_ks.end() ? concat("budget ", budget) : concat("K = ", top_k->second);
}

}  // namespace page

namespace {

using page::Source;

/// Returns the arms with their runs, and with the order of their colours: 0 is the grey of the reference.
OrderedJson arms_json(const Source& source) {
  const auto& study = source.study;
  OrderedJson arms = OrderedJson::array();
  int64_t colour = 1;
  for (const auto& arm : study.arms) {
    const bool is_reference = arm == study.reference && study.arms.size() > 1;
    OrderedJson runs = OrderedJson::array();
    for (size_t i = 0; i < source.runs.size(); ++i)
      if (study.arms[source.arm_of_run[i]] == arm) runs.push_back(i);
    arms.push_back({{"name", arm},
                    {"title", source.name(arm, "")},
                    {"colour", is_reference ? 0 : colour++},
                    {"runs", std::move(runs)},
                    {"spent", page::spent_json(comparison::runs_of(study, arm))}});
  }
  return arms;
}

OrderedJson run_json(const Source& source, size_t index) {
  const auto& run = source.runs[index];
  OrderedJson costs = OrderedJson::array();
  for (const auto& measure : records::cost_measures()) costs.push_back(page::number(measure.of(cost_of(run))));
  OrderedJson json{{"label", run.label},
                   {"arm", source.arm_of_run[index]},
                   {"method", run.method},
                   {"seed", run.seed},
                   {"model", run.model},
                   {"config", run.config},
                   {"version", run.manifest.value("version", "")},
                   {"rounds", run.rounds.size()},
                   {"costs", std::move(costs)},
                   {"spent", page::spent_json(std::vector{&run})}};
  if (!run.rounds.empty() && run.rounds.back().loss) json["loss"] = page::rounded(*run.rounds.back().loss);
  return json;
}

/// Returns the labels of runs. All runs of an arm, if they are more than two, are named together: "fedit (8 runs)".
std::vector<std::string> short_labels(const Source& source, std::vector<std::string> labels) {
  for (size_t arm = 0; arm < source.study.arms.size(); ++arm) {
    std::vector<std::string> own;
    for (size_t i = 0; i < source.runs.size(); ++i)
      if (source.arm_of_run[i] == arm) own.push_back(source.runs[i].label);
    const auto is_own = [&](const std::string& label) { return std::find(own.begin(), own.end(), label) != own.end(); };
    const auto first = std::find_if(labels.begin(), labels.end(), is_own);
    if (own.size() < 3 || std::count_if(labels.begin(), labels.end(), is_own) != static_cast<int64_t>(own.size()))
      continue;
    *first = concat(source.study.arms[arm], " (", own.size(), " runs)");
    std::erase_if(labels, is_own);
  }
  return labels;
}

OrderedJson differences_json(const Source& source) {
  OrderedJson all = OrderedJson::array();
  for (const auto& difference : comparison::differences(source.runs, source.study.free)) {
    OrderedJson sides = OrderedJson::array();
    for (const auto& side : difference.sides)
      sides.push_back({{"value", side.value}, {"runs", short_labels(source, side.runs)}});
    all.push_back({{"what", difference.what}, {"sides", sides}});
  }
  return all;
}

/// Returns the measures that some score has. The title of a measure ends with its unit.
OrderedJson measures_json(const comparison::ScoreLookup& scores) {
  OrderedJson all = OrderedJson::array();
  for (const auto name : scoring::measures_in(scores.all())) {
    const auto& measure = scoring::find_measure(name);
    const std::string title(measure.title);
    all.push_back({{"name", measure.name},
                   {"title", title.substr(0, title.rfind(", "))},
                   {"axis", title},
                   {"share", measure.is_share},
                   {"higher_is_better", measure.higher_is_better}});
  }
  return all;
}

OrderedJson tasks_json(const comparison::ScoreLookup& scores) {
  OrderedJson all = OrderedJson::array();
  for (const auto& task : scoring::distinct(std::span(scores.all()), &scoring::TaskScore::task)) {
    const auto first = std::find_if(scores.all().begin(), scores.all().end(),
                                    [&](const scoring::TaskScore& score) { return score.task == task; });
    all.push_back({{"name", task}, {"rows", first->rows}, {"questions", first->questions}});
  }
  return all;
}

std::vector<double> budgets_of(const comparison::ScoreLookup& scores) {
  auto budgets = scoring::distinct(std::span(scores.all()), &scoring::TaskScore::budget);
  std::sort(budgets.begin(), budgets.end());
  return budgets;
}

OrderedJson budgets_json(const Source& source, std::span<const double> budgets) {
  OrderedJson all = OrderedJson::array();
  for (const double budget : budgets) all.push_back({{"budget", budget}, {"name", source.name(budget)}});
  return all;
}

OrderedJson routings_json(const comparison::ScoreLookup& scores) {
  auto served = scoring::distinct(std::span(scores.all()), &scoring::TaskScore::served_by);
  std::sort(served.begin(), served.end());
  OrderedJson all = OrderedJson::array();
  for (const auto by : served) all.push_back({{"name", config::name_of(by)}, {"title", served_name(by)}});
  return all;
}

/// Returns the endpoint of runs that belong to no study: default_endpoint(), or if no run has it, the first measure.
std::string first_endpoint(const Source& source, const comparison::ScoreLookup& scores) {
  const auto wanted = comparison::default_endpoint(source.runs);
  const auto there = scoring::measures_in(scores.all());
  return std::find(there.begin(), there.end(), wanted) != there.end() ? wanted : std::string(there.front());
}

/// Adds what needs scores. \throws kConfig if no run has the endpoint
void add_scores(OrderedJson& data, const Source& source, const comparison::ScoreLookup& scores) {
  const auto& study = source.study;
  const auto endpoint = study.endpoint.empty() ? first_endpoint(source, scores) : study.endpoint;
  const auto budgets = budgets_of(scores);
  const auto compared = comparison::compare(study, scores, {.endpoint = endpoint, .bootstrap = false, .beside = false});
  data["endpoint"] = endpoint;
  data["missing"] = compared.missing;
  data["notes"] = compared.notes;
  data["tasks"] = tasks_json(scores);
  data["budgets"] = budgets_json(source, budgets);
  data["routings"] = routings_json(scores);
  data["measures"] = measures_json(scores);
  data["views"] = page::views_json(source, scores);
  data["progress"] = page::progress_json(source, scores, budgets);
}

}  // namespace

OrderedJson page_data(const comparison::StudyRuns& study) {
  const Source source(study);
  OrderedJson data{{"name", study.name},
                   {"is_study", std::any_of(source.runs.begin(), source.runs.end(),
                                            [](const records::RunRecords& run) { return !run.arm.empty(); })},
                   {"reference", study.reference},
                   {"arms", arms_json(source)},
                   {"runs", OrderedJson::array()},
                   {"differences", differences_json(source)}};
  for (size_t i = 0; i < source.runs.size(); ++i) data["runs"].push_back(run_json(source, i));
  const comparison::ScoreLookup scores(study, false);
  if (!scores.all().empty()) add_scores(data, source, scores);
  data["training"] = page::training_json(source);
  data["clients"] = page::clients_json(source);
  data["experts"] = page::experts_json(source);
  data["costs"] = page::costs_json(source);
  return data;
}

}  // namespace evenkeel::report
