#include "comparison/function_differences.h"

#include <algorithm>
#include <map>

namespace evenkeel::comparison {
namespace {

using TopKs = std::map<double, int64_t>;  // experts per token by budget

TopKs top_ks_of(const ScoreLookup& scores, const ServedResult& result, const ArmResult& arm) {
  TopKs by_budget;
  const auto served_by = scores.served_in({arm.arm, arm.rank_eval_mode, result.served_by});
  for (const auto& score : scores.of_arm(arm.arm))
    if (score.rank_eval_mode == arm.rank_eval_mode && score.served_by == served_by)
      by_budget[score.budget] = score.top_k;
  return by_budget;
}

/// Returns the experts per token of the scores by label, at the budgets that all arms with scores have.
std::map<std::string, TopKs> top_ks_by_label(const ScoreLookup& scores, const ServedResult& result) {
  std::map<std::string, TopKs> all;
  for (const auto& arm : result.arms)
    if (auto of_arm = top_ks_of(scores, result, arm); !of_arm.empty()) all.emplace(arm.label, std::move(of_arm));
  const auto is_common = [&](double budget) {
    return std::all_of(all.begin(), all.end(), [&](const auto& entry) { return entry.second.contains(budget); });
  };
  for (const double budget : result.budgets)
    if (!is_common(budget))
      for (auto& [label, by_budget] : all) by_budget.erase(budget);
  return all;
}

/// Returns the rank with which an arm is scored.
std::string rank_of(const ArmResult& arm) {
  return arm.rank_eval_mode == "a" ? "that of the budget" : "that of the whole adapter";
}

/// Returns the labels of an arm's results: one per rank evaluation mode.
std::vector<std::string> labels_of(const ServedResult& result, const std::vector<std::string>& arms) {
  std::vector<std::string> labels;
  for (const auto& arm : result.arms)
    if (std::find(arms.begin(), arms.end(), arm.arm) != arms.end()) labels.push_back(arm.label);
  return labels;
}

/// Adds a property of the scores if it is not equal in all arms. An arm without scores has an empty one.
template <typename Value>
void add_unlike(ServedResult& result, std::string what, const Value& value) {
  Difference found{.what = std::move(what), .sides = {}, .changes_function = true};
  for (const auto& arm : result.arms) {
    const std::string text = value(arm);
    if (text.empty()) continue;
    auto side =
        std::find_if(found.sides.begin(), found.sides.end(), [&](const auto& one) { return one.value == text; });
    if (side == found.sides.end()) side = found.sides.insert(side, {text, {}});
    side->runs.push_back(arm.label);
  }
  if (found.sides.size() > 1) result.unlike.push_back(std::move(found));
}

}  // namespace

void add_function_differences(const StudyRuns& study, const ScoreLookup& scores, ServedResult& result) {
  result.unlike = function_differences(study);
  for (auto& difference : result.unlike)
    for (auto& side : difference.sides) side.runs = labels_of(result, side.runs);
  const auto top_ks = top_ks_by_label(scores, result);
  add_unlike(result, "K of scores", [&](const ArmResult& arm) {
    const auto found = top_ks.find(arm.label);
    return found == top_ks.end() ? std::string() : top_ks_text(found->second);
  });
  add_unlike(result, "rank of scores", rank_of);
  for (auto& arm : result.arms)
    for (const auto& difference : result.unlike) {
      const auto *own = difference.side_of(arm.label), *others = difference.side_of(arm.reference);
      if (own != nullptr && others != nullptr && own != others)
        arm.unlike.push_back({difference.what, own->value, others->value});
    }
}

}  // namespace evenkeel::comparison
