#include <algorithm>

#include "comparison/comparison.h"
#include "comparison/cost_by_k.h"
#include "comparison/traffic.h"
#include "records/run_costs.h"
#include "report/page_parts.h"

namespace evenkeel::report::page {
namespace {

OrderedJson traffic_json(const Source& source, const std::string& arm) {
  OrderedJson all = OrderedJson::array();
  for (const auto& traffic : comparison::traffic_of(source.study, arm)) {
    OrderedJson json{{"content", traffic.content}};
    add(json, "up", traffic.up);
    add(json, "down", traffic.down);
    all.push_back(std::move(json));
  }
  return all;
}

OrderedJson of_k_json(const comparison::CostOfK& cost) {
  OrderedJson json{{"top_k", cost.top_k}, {"runs", cost.runs}, {"seconds_runs", cost.seconds_runs}};
  add(json, "flops", cost.flops);
  add(json, "seconds", cost.seconds);
  add(json, cost.interval);
  add(json, "flops_share", cost.flops_share);
  add(json, "seconds_share", cost.seconds_share);
  return json;
}

OrderedJson arm_costs_json(const Source& source, const std::string& arm,
                           std::span<const comparison::CostOfK> by_top_k) {
  const auto cost = comparison::cost_of_arm(source.study, arm);
  OrderedJson means = OrderedJson::array(), of_k = OrderedJson::array();
  for (const auto& mean : cost.means) means.push_back(number(mean));
  for (const auto& one : by_top_k)
    if (one.arm == arm && one.runs > 0) of_k.push_back(of_k_json(one));
  return {{"runs", cost.runs},
          {"means", std::move(means)},
          {"by_top_k", std::move(of_k)},
          {"traffic", traffic_json(source, arm)}};
}

}  // namespace

OrderedJson costs_json(const Source& source) {
  const auto& study = source.study;
  const auto top_ks = comparison::client_top_ks(study);
  const auto by_top_k = comparison::costs_by_k(study, study.arms, top_ks);
  OrderedJson json{{"measures", OrderedJson::array()},
                   {"largest_top_k", top_ks.empty() ? 0 : top_ks.back()},
                   {"arms", OrderedJson::array()}};
  for (const auto& measure : records::cost_measures())
    json["measures"].push_back({{"name", measure.name}, {"title", measure.title}});
  for (const auto& arm : study.arms) json["arms"].push_back(arm_costs_json(source, arm, by_top_k));
  return json;
}

}  // namespace evenkeel::report::page
