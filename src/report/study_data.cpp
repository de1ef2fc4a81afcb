#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "comparison/conclusion.h"
#include "comparison/cost_by_k.h"
#include "records/client_costs.h"
#include "records/run_costs.h"
#include "report/study_report.h"

namespace evenkeel::report {
namespace {

constexpr std::string_view kTokenFlops = "flops_per_1000_tokens", kTokenSeconds = "seconds_per_1000_tokens";

/// A line of the CSV file.
struct Value {
  std::string arm;
  int64_t seed = 0;
  int64_t round = 0;
  std::string served_by{}, rank_eval_mode{};
  std::optional<double> budget{};  ///< absent, as top_k: the value is of the whole run
  std::optional<int64_t> top_k{};
  std::string task{}, measure{};
  double value = 0;
  std::string differs_in{};  ///< in what the arm and its reference differ beside the method
};

/// Returns the shortest text that reads back as the same number.
std::string exact(double value) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string inner;
  for (const char c : text) inner += c == '"' ? "\"\"" : std::string(1, c);
  return concat('"', inner, '"');
}

/// Returns the measures of the score, and its numbers of rows and different questions.
std::vector<std::pair<std::string_view, double>> numbers_of(const scoring::TaskScore& score) {
  std::vector<std::pair<std::string_view, double>> numbers;
  for (const auto& measure : scoring::measures())
    if (const auto value = measure.of(score)) numbers.emplace_back(measure.name, *value);
  if (score.kind == scoring::AnswerKind::kChoice) numbers.emplace_back("chance", score.chance);
  if (score.kind == scoring::AnswerKind::kChoice) numbers.emplace_back("majority", score.majority);
  numbers.emplace_back("rows", static_cast<double>(score.rows));
  numbers.emplace_back("questions", static_cast<double>(score.questions));
  return numbers;
}

void add_scores(const comparison::ArmRun& run, std::vector<Value>& values) {
  for (const auto& score : run.scores()) {
    if (!score.is_complete()) continue;
    Value line{run.arm,
               run.seed,
               run.records->last_evaluated(),
               std::string(config::name_of(score.served_by)),
               score.rank_eval_mode,
               score.budget,
               score.top_k,
               score.task};
    for (const auto& [name, number] : numbers_of(score)) {
      line.measure = name;
      line.value = number;
      values.push_back(line);
    }
  }
}

void add_costs(const comparison::ArmRun& run, std::vector<Value>& values) {
  const auto cost = records::cost_of(*run.records);
  for (const auto& measure : records::cost_measures())
    if (const auto value = measure.of(cost)) {
      Value line{run.arm, run.seed, static_cast<int64_t>(run.records->rounds.size())};
      line.measure = measure.name;
      line.value = *value;
      values.push_back(std::move(line));
    }
}

/// Adds what 1,000 tokens cost the clients of every budget.
void add_client_costs(const comparison::ArmRun& run, std::vector<Value>& values) {
  for (const auto& cost : records::client_costs(*run.records)) {
    Value line{run.arm, run.seed, static_cast<int64_t>(run.records->rounds.size())};
    line.budget = cost.budget;
    line.top_k = cost.top_k;
    for (const auto& [name, value] :
         {std::pair{kTokenFlops, cost.token_flops()}, {kTokenSeconds, cost.token_seconds()}})
      if (value) {
        line.measure = name;
        line.value = *value;
        values.push_back(line);
      }
  }
}

/// Returns a text such as "gating: renormalised (fedit: not renormalised)"; "" if arm and reference do not differ.
std::string differs_text(const comparison::ArmResult& arm) {
  std::vector<std::string> all;
  for (const auto& [what, own, others] : arm.unlike)
    all.push_back(concat(what, ": ", own, " (", arm.reference, ": ", others, ')'));
  return join(all, "; ");
}

/// Sets differs_in. A value of a whole run has that of the arm's first rank evaluation mode.
void add_differences(const comparison::Comparison& comparison, std::vector<Value>& values) {
  std::map<std::array<std::string, 3>, std::string> texts;  // by arm, way of serving and rank evaluation mode
  for (const auto& result : comparison.served)
    for (const auto& arm : result.arms) {
      const auto text = differs_text(arm);
      texts.emplace(std::array{arm.arm, std::string(config::name_of(result.served_by)), arm.rank_eval_mode}, text);
      texts.emplace(std::array{arm.arm, std::string(), std::string()}, text);
    }
  for (auto& value : values)
    if (const auto found = texts.find({value.arm, value.served_by, value.rank_eval_mode}); found != texts.end())
      value.differs_in = found->second;
}

std::vector<Value> values_of(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  std::vector<Value> values;
  for (const auto& run : study.runs)
    if (run.missing.empty()) add_scores(run, values);
  for (const auto& run : study.runs)
    if (run.missing.empty()) add_costs(run, values);
  for (const auto& run : study.runs)
    if (run.missing.empty()) add_client_costs(run, values);
  add_differences(comparison, values);
  return values;
}

OrderedJson or_null(const auto& value) { return value ? OrderedJson(*value) : OrderedJson(); }

OrderedJson or_null(const std::optional<comparison::Interval>& interval) {
  return interval ? OrderedJson::array({interval->low, interval->high}) : OrderedJson();
}

OrderedJson json_of(const comparison::BudgetMean& budget, std::span<const scoring::Measure* const> beside) {
  OrderedJson by_seed = OrderedJson::array(), others = OrderedJson::object();
  for (const auto& value : budget.by_seed) by_seed.push_back(or_null(value));
  for (size_t i = 0; i < beside.size(); ++i) others[std::string(beside[i]->name)] = or_null(budget.beside[i]);
  return {{"budget", budget.budget},
          {"n", budget.complete},
          {"by_seed", std::move(by_seed)},
          {"mean", or_null(budget.mean)},
          {"deviation", or_null(budget.deviation)},
          {"interval_t", or_null(budget.interval)},
          {"other_measures", std::move(others)}};
}

OrderedJson json_of(const comparison::PairedDifference& difference) {
  return {{"budget", difference.budget},
          {"seeds", difference.seeds},
          {"by_seed", difference.by_seed},
          {"mean", or_null(difference.mean)},
          {"deviation", or_null(difference.deviation)},
          {"interval_t", or_null(difference.t)},
          {"interval_bca", or_null(difference.bca)},
          {"bootstrap_of_items", difference.items},
          {"p", or_null(difference.p)},
          {"p_holm", or_null(difference.p_holm)},
          {"shown", difference.p_holm ? OrderedJson(comparison::is_shown(difference)) : OrderedJson()},
          {"detectable", or_null(difference.detectable)}};
}

OrderedJson json_of(const comparison::FunctionDifference& difference) {
  return {{"what", difference.what}, {"value", difference.own}, {"reference_value", difference.others}};
}

OrderedJson json_of(const comparison::Difference& difference) {
  OrderedJson sides = OrderedJson::array();
  for (const auto& side : difference.sides) sides.push_back({{"value", side.value}, {"arms", side.runs}});
  return {{"what", difference.what}, {"sides", std::move(sides)}};
}

OrderedJson list_of(const auto& values) {
  OrderedJson list = OrderedJson::array();
  for (const auto& value : values) list.push_back(json_of(value));
  return list;
}

OrderedJson json_of(const comparison::ArmResult& arm, const comparison::Comparison& comparison) {
  OrderedJson budgets = OrderedJson::array(), differences = OrderedJson::array(), tasks = OrderedJson::array();
  for (const auto& budget : arm.budgets) budgets.push_back(json_of(budget, comparison.beside));
  for (const auto& difference : arm.differences) differences.push_back(json_of(difference));
  for (const auto& record : arm.tasks)
    tasks.push_back({{"task", record.task}, {"wins", record.wins}, {"losses", record.losses}, {"ties", record.ties}});
  return {{"arm", arm.arm},
          {"rank_eval_mode", arm.rank_eval_mode},
          {"reference", arm.is_reference},
          {"compared_with", arm.reference},
          {"budgets", std::move(budgets)},
          {"function_differences", list_of(arm.unlike)},
          {"differences", std::move(differences)},
          {"tasks", std::move(tasks)}};
}

OrderedJson json_of(const comparison::ServedResult& result, const comparison::Comparison& comparison) {
  OrderedJson arms = OrderedJson::array();
  for (const auto& arm : result.arms) arms.push_back(json_of(arm, comparison));
  return {{"served_by", config::name_of(result.served_by)},
          {"tasks", result.tasks},
          {"tasks_without_endpoint", result.without},
          {"comparisons", result.comparisons},
          {"conclusions", result.conclusions},
          {"as_in_run", result.as_in_run},
          {"not_exported", result.not_exported},
          {"function_differences", list_of(result.unlike)},
          {"arms", std::move(arms)}};
}

OrderedJson json_of(const comparison::CostOfK& cost) {
  return {{"top_k", cost.top_k},
          {"runs", cost.runs},
          {"seconds_runs", cost.seconds_runs},
          {kTokenFlops, or_null(cost.flops)},
          {kTokenSeconds, or_null(cost.seconds)},
          {"interval_t", or_null(cost.interval)},
          {"flops_share", or_null(cost.flops_share)},
          {"seconds_share", or_null(cost.seconds_share)}};
}

OrderedJson json_of(const comparison::ArmCost& cost, std::span<const comparison::CostOfK> by_top_k) {
  OrderedJson json{{"arm", cost.arm}, {"runs", cost.runs}};
  for (size_t i = 0; i < cost.means.size(); ++i)
    json[std::string(records::cost_measures()[i].name)] = or_null(cost.means[i]);
  json["by_top_k"] = OrderedJson::array();
  for (const auto& of_k : by_top_k)
    if (of_k.arm == cost.arm) json["by_top_k"].push_back(json_of(of_k));
  return json;
}

OrderedJson json_of(const Value& value) {
  return {{"arm", value.arm},
          {"seed", value.seed},
          {"round", value.round},
          {"served_by", value.served_by},
          {"rank_eval_mode", value.rank_eval_mode},
          {"budget", or_null(value.budget)},
          {"top_k", or_null(value.top_k)},
          {"task", value.task},
          {"measure", value.measure},
          {"value", value.value},
          {"differs_in", value.differs_in}};
}

}  // namespace

std::string csv_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  std::string text = "study,arm,seed,round,served_by,rank_eval_mode,budget,top_k,task,measure,value,differs_in\n";
  for (const auto& line : values_of(study, comparison)) {
    const std::vector<std::string> cells{csv_quoted(study.name),
                                         csv_quoted(line.arm),
                                         std::to_string(line.seed),
                                         std::to_string(line.round),
                                         line.served_by,
                                         line.rank_eval_mode,
                                         line.budget ? exact(*line.budget) : "",
                                         line.top_k ? std::to_string(*line.top_k) : "",
                                         csv_quoted(line.task),
                                         line.measure,
                                         exact(line.value),
                                         csv_quoted(line.differs_in)};
    text += join(cells, ",") + '\n';
  }
  return text;
}

std::string json_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  OrderedJson served = OrderedJson::array(), costs = OrderedJson::array(), values = OrderedJson::array();
  for (const auto& result : comparison.served) served.push_back(json_of(result, comparison));
  const auto by_top_k = comparison::costs_by_k(study, study.arms, comparison::client_top_ks(study));
  for (const auto& cost : comparison.costs) costs.push_back(json_of(cost, by_top_k));
  for (const auto& value : values_of(study, comparison)) values.push_back(json_of(value));
  const OrderedJson json{{"version", 1},
                         {"name", study.name},
                         {"endpoint", comparison.endpoint->name},
                         {"reference", study.reference},
                         {"seeds", study.seeds},
                         {"missing", comparison.missing},
                         {"notes", comparison.notes},
                         {"served", std::move(served)},
                         {"costs", std::move(costs)},
                         {"values", std::move(values)}};
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

}  // namespace evenkeel::report
