#include "comparison/views.h"
#include "report/page_parts.h"

namespace evenkeel::report::page {
namespace {

OrderedJson mean_json(const comparison::BudgetMean& budget) {
  OrderedJson json{{"n", budget.complete}};
  add(json, "mean", budget.mean);
  add(json, budget.interval);
  return json;
}

OrderedJson difference_json(const comparison::PairedDifference& difference) {
  OrderedJson json{{"n", difference.by_seed.size()}};
  add(json, "mean", difference.mean);
  add(json, difference.t);
  add(json, "p", difference.p);
  add(json, "p_holm", difference.p_holm);
  return json;
}

/// Returns the values of every seed, one list per budget; empty for fewer than two seeds.
OrderedJson seeds_json(const comparison::ArmResult& arm) {
  OrderedJson all = OrderedJson::array();
  for (const auto& budget : arm.budgets) {
    if (budget.by_seed.size() < 2) continue;
    OrderedJson values = OrderedJson::array();
    for (const auto& value : budget.by_seed) values.push_back(number(value));
    all.push_back(std::move(values));
  }
  return all;
}

const comparison::ArmResult* reference_of(const comparison::ServedResult& result, const comparison::ArmResult& arm) {
  for (const auto& other : result.arms)
    if (!arm.reference.empty() && other.label == arm.reference) return &other;
  return nullptr;
}

OrderedJson arm_json(const Source& source, const comparison::ServedResult& result, const comparison::ArmResult& arm) {
  OrderedJson means = OrderedJson::array(), differences = OrderedJson::array();
  for (const auto& budget : arm.budgets) means.push_back(mean_json(budget));
  for (const auto& difference : arm.differences) differences.push_back(difference_json(difference));
  OrderedJson json{{"arm", source.index(arm.arm)},
                   {"mode", arm.rank_eval_mode},
                   {"name", source.name(arm.arm, arm.rank_eval_mode)},
                   {"means", std::move(means)},
                   {"over_budgets", mean_json(comparison::mean_over_budgets(arm))},
                   {"seeds", seeds_json(arm)},
                   {"differences", std::move(differences)}};
  if (const auto* reference = reference_of(result, arm)) {
    json["reference"] = arm.reference;
    json["difference_over_budgets"] = difference_json(comparison::difference_over_budgets(arm, *reference));
  }
  return json;
}

OrderedJson served_json(const Source& source, const comparison::ScoreLookup& scores, const comparison::View& view,
                        const comparison::ServedResult& result) {
  OrderedJson arms = OrderedJson::array();
  for (const auto& arm : result.arms) arms.push_back(arm_json(source, result, arm));
  OrderedJson json{{"conclusions", result.conclusions},
                   {"comparisons", result.comparisons},
                   {"without", result.without},
                   {"arms", std::move(arms)}};
  if (auto text = comparison::unreadable(source.study, scores, view.comparison, result); !text.empty())
    json["unreadable"] = std::move(text);
  return json;
}

}  // namespace

OrderedJson views_json(const Source& source, const comparison::ScoreLookup& scores) {
  OrderedJson all = OrderedJson::array();
  for (const auto& view : comparison::views_of(source.study, scores)) {
    OrderedJson served = OrderedJson::object();
    for (const auto& result : view.comparison.served)
      served[std::string(config::name_of(result.served_by))] = served_json(source, scores, view, result);
    OrderedJson json{{"measure", view.comparison.endpoint->name}, {"task", view.task}};
    add(json, "chance", view.chance);
    add(json, "majority", view.majority);
    json["served"] = std::move(served);
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace evenkeel::report::page
