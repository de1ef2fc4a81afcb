#include <map>
#include <numeric>
#include <set>

#include "comparison/curves.h"
#include "records/phi_correlation.h"
#include "report/page_parts.h"
#include "report/privacy_table.h"

namespace evenkeel::report::page {
namespace {

/// Returns one list per column of the points, and one per run if there are several.
OrderedJson curve_json(const Source& source, const comparison::Curve& curve) {
  OrderedJson json{{"arm", source.index(curve.arm)},
                   {"mode", curve.rank_eval_mode},
                   {"name", source.name(curve.arm, curve.rank_eval_mode)}};
  for (const auto* key : {"round", "n", "mean", "low", "high", "runs"}) json[key] = OrderedJson::array();
  for (const auto& point : curve.points) {
    json["round"].push_back(point.round);
    json["n"].push_back(point.runs);
    json["mean"].push_back(rounded(point.mean));
    json["low"].push_back(point.interval ? OrderedJson(rounded(point.interval->low)) : OrderedJson());
    json["high"].push_back(point.interval ? OrderedJson(rounded(point.interval->high)) : OrderedJson());
  }
  if (curve.by_run.size() < 2) return json;
  for (const auto& run : curve.by_run) {
    auto& values = json["runs"].emplace_back(OrderedJson::array());
    for (const auto& value : run) values.push_back(number(value));
  }
  return json;
}

OrderedJson curves_json(const Source& source, std::span<const comparison::Curve> curves) {
  OrderedJson all = OrderedJson::array();
  for (const auto& curve : curves) all.push_back(curve_json(source, curve));
  return all;
}

void add_quantity(OrderedJson& all, const Source& source, const std::string& name,
                  const comparison::RoundValue& value) {
  const auto curves = comparison::round_curves(source.study, value);
  if (!curves.empty()) all.push_back({{"name", name}, {"curves", curves_json(source, curves)}});
}

std::set<std::string> metrics_of(const Source& source) {
  std::set<std::string> names;
  for (const auto& run : source.runs)
    for (const auto& round : run.rounds)
      for (const auto& [name, value] : round.metrics) names.insert(name);
  return names;
}

/// Returns a quantity of the use of experts.
template <typename Value>
comparison::RoundValue of_experts(Value value) {
  return [value](const fed::RoundRecord& round) -> std::optional<double> {
    return round.experts ? std::optional<double>(value(*round.experts)) : std::nullopt;
  };
}

/// The associations of phi and utilisation by round; nothing for rounds without phi.
using PhiOfRounds = std::map<const fed::RoundRecord*, records::PhiCorrelation>;

PhiOfRounds phi_of_rounds(const comparison::StudyRuns& study) {
  PhiOfRounds found;
  for (const auto& run : study.runs) {
    if (!run.records) continue;
    for (const auto& round : run.records->rounds)
      if (const auto phi_LE = records::phi_of(round); !phi_LE.empty())
        found[&round] = records::phi_correlation(phi_LE, round.experts->utilization);
  }
  return found;
}

void add_phi(OrderedJson& all, const Source& source) {
  const auto found = phi_of_rounds(source.study);
  const auto of = [&](double records::PhiCorrelation::*member) -> comparison::RoundValue {
    return [&found, member](const fed::RoundRecord& round) {
      const auto at = found.find(&round);
      return at == found.end() ? std::nullopt : std::optional(at->second.*member);
    };
  };
  add_quantity(all, source, "pearson", of(&records::PhiCorrelation::pearson));
  add_quantity(all, source, "spearman", of(&records::PhiCorrelation::spearman));
  add_quantity(all, source, "slope", of(&records::PhiCorrelation::slope));
}

void add_experts(OrderedJson& all, const Source& source) {
  add_quantity(all, source, "entropy_mean", of_experts([](const auto& use) { return use.entropy_mean; }));
  add_quantity(all, source, "gini_mean", of_experts([](const auto& use) { return use.gini_mean; }));
  add_quantity(all, source, "dead_experts", of_experts([](const auto& use) {
                 return std::accumulate(use.dead_experts.begin(), use.dead_experts.end(), int64_t{0});
               }));
}

void add_privacy(OrderedJson& all, const Source& source) {
  add_quantity(all, source, "epsilon", [](const fed::RoundRecord& round) -> std::optional<double> {
    const auto privacy = privacy_of(round);
    return privacy ? std::optional(privacy->epsilon) : std::nullopt;
  });
  add_quantity(all, source, "signal", [](const fed::RoundRecord& round) {
    const auto privacy = privacy_of(round);
    return privacy ? privacy->signal : std::nullopt;
  });
}

}  // namespace

OrderedJson progress_json(const Source& source, const comparison::ScoreLookup& scores,
                          std::span<const double> budgets) {
  OrderedJson all = OrderedJson::array();
  for (const auto name : scoring::measures_in(scores.all())) {
    const auto& measure = scoring::find_measure(name);
    OrderedJson by_budget = OrderedJson::array();
    for (const double budget : budgets)
      by_budget.push_back(curves_json(source, comparison::score_curves(source.study, measure, budget)));
    all.push_back({{"measure", name},
                   {"over_budgets", curves_json(source, comparison::score_curves(source.study, measure, std::nullopt))},
                   {"by_budget", std::move(by_budget)}});
  }
  return all;
}

OrderedJson training_json(const Source& source) {
  OrderedJson all = OrderedJson::array();
  add_quantity(all, source, "loss", [](const fed::RoundRecord& round) { return round.loss; });
  add_quantity(all, source, "experts_per_token", [](const fed::RoundRecord& round) {
    return round.experts_per_token > 0 ? std::optional(round.experts_per_token) : std::nullopt;
  });
  for (const auto& name : metrics_of(source))
    add_quantity(all, source, "metrics." + name, [&](const fed::RoundRecord& round) -> std::optional<double> {
      const auto found = round.metrics.find(name);
      return found == round.metrics.end() ? std::nullopt : std::optional(found->second);
    });
  add_experts(all, source);
  add_phi(all, source);
  add_privacy(all, source);
  return all;
}

OrderedJson spent_json(std::span<const records::RunRecords* const> runs) {
  OrderedJson json;
  for (const auto* key : {"round", "bytes", "flops", "seconds", "simulated_seconds"}) json[key] = OrderedJson::array();
  for (const auto& spent : comparison::mean_spent(runs)) {
    json["round"].push_back(spent.round);
    json["bytes"].push_back(rounded(spent.bytes));
    json["flops"].push_back(spent.flops ? OrderedJson(rounded(*spent.flops)) : OrderedJson());
    json["seconds"].push_back(number(spent.seconds));
    json["simulated_seconds"].push_back(number(spent.simulated_seconds));
  }
  return json;
}

}  // namespace evenkeel::report::page
