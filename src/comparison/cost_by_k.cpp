#include "comparison/cost_by_k.h"

#include <algorithm>
#include <set>

#include "records/client_costs.h"

namespace evenkeel::comparison {
namespace {

/// Cost of 1,000 tokens in one run.
struct RunCost {
  std::optional<double> flops, seconds;
};

RunCost run_cost(const ArmRun& run, int64_t top_k) {
  records::ClientCost sum;
  if (run.records)
    for (const auto& cost : records::client_costs(*run.records)) {
      if (cost.top_k != top_k) continue;
      sum.tokens += cost.tokens;
      sum.flops += cost.flops;
      sum.seconds += cost.seconds;
      sum.timed_tokens += cost.timed_tokens;
    }
  return {sum.token_flops(), sum.token_seconds()};
}

void add_share(const std::optional<double>& part, const std::optional<double>& whole, std::vector<double>& shares) {
  if (part && whole && *whole > 0) shares.push_back(*part / *whole);
}

std::optional<double> mean_if_any(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(mean_of(values));
}

CostOfK cost_of_k(const StudyRuns& study, const std::string& arm, int64_t top_k, int64_t largest) {
  std::vector<double> flops, seconds, flops_shares, seconds_shares;
  for (const int64_t seed : study.seeds) {
    const auto* run = study.find(arm, seed);
    if (run == nullptr) continue;
    const auto cost = run_cost(*run, top_k), full = run_cost(*run, largest);
    if (cost.flops) flops.push_back(*cost.flops);
    if (cost.seconds) seconds.push_back(*cost.seconds);
    add_share(cost.flops, full.flops, flops_shares);
    add_share(cost.seconds, full.seconds, seconds_shares);
  }
  return {.arm = arm,
          .top_k = top_k,
          .runs = static_cast<int64_t>(flops.size()),
          .seconds_runs = static_cast<int64_t>(seconds.size()),
          .flops = mean_if_any(flops),
          .seconds = mean_if_any(seconds),
          .interval = t_interval(seconds),
          .flops_share = mean_if_any(flops_shares),
          .seconds_share = mean_if_any(seconds_shares)};
}

/// Returns the largest K of the clients of these arms; 0 without clients.
int64_t largest_client_top_k(const StudyRuns& study, std::span<const std::string> arms) {
  int64_t largest = 0;
  for (const auto& run : study.runs)
    if (run.records && std::find(arms.begin(), arms.end(), run.arm) != arms.end())
      for (const auto& cost : records::client_costs(*run.records)) largest = std::max(largest, cost.top_k);
  return largest;
}

}  // namespace

std::vector<int64_t> client_top_ks(const StudyRuns& study) {
  std::set<int64_t> all;
  for (const auto& run : study.runs)
    if (run.records)
      for (const auto& cost : records::client_costs(*run.records)) all.insert(cost.top_k);
  return {all.begin(), all.end()};
}

std::vector<int64_t> all_top_ks(const StudyRuns& study) {
  const auto of_clients = client_top_ks(study);
  std::set<int64_t> all(of_clients.begin(), of_clients.end());
  for (const auto& run : study.runs)
    if (run.records)
      for (const auto& score : run.scores()) all.insert(score.top_k);
  return {all.begin(), all.end()};
}

std::vector<CostOfK> costs_by_k(const StudyRuns& study, std::span<const std::string> arms,
                                std::span<const int64_t> top_ks) {
  std::vector<CostOfK> costs;
  const int64_t largest = largest_client_top_k(study, arms);
  for (const auto& arm : arms)
    for (const int64_t top_k : top_ks) costs.push_back(cost_of_k(study, arm, top_k, largest));
  return costs;
}

}  // namespace evenkeel::comparison
