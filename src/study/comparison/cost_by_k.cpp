#include "study/comparison/cost_by_k.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/plain/error.h"
#include "report/client_costs.h"
#include "report/text_grid.h"

namespace evenkeel::study {
namespace {

/// Cost of 1,000 tokens in one run.
struct RunCost {
  std::optional<double> flops, seconds;
};

RunCost run_cost(const ArmRun& run, int64_t top_k) {
  report::ClientCost sum;
  if (run.records)
    for (const auto& cost : report::client_costs(*run.records)) {
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

/// Formats a number with about four significant digits.
std::string digits(double value) {
  const double size = std::floor(std::log10(std::max(std::abs(value), 1e-9)));
  return report::fixed(value, std::clamp(3 - static_cast<int>(size), 0, 9));
}

Cell share_cell(const std::optional<double>& share) {
  return share ? Cell{.text = report::fixed(100 * *share, 1)} : Cell{.text = "-", .is_number = false};
}

Cell seconds_cell(const CostOfK& cost) {
  if (!cost.seconds) return {.text = "-", .is_number = false};
  const auto text = digits(*cost.seconds);
  const auto point = text.find('.');
  const int decimals = point == text.npos ? 0 : static_cast<int>(text.size() - point - 1);
  const auto& interval = cost.interval;
  return {.text = text,
          .interval = interval ? concat("+-", report::fixed((interval->high - interval->low) / 2, decimals)) : ""};
}

Cell flops_cell(const CostOfK& cost) {
  return {.text = cost.flops ? report::compact(*cost.flops) : "no client", .is_number = false};
}

/// Returns the largest K of the clients of these arms; 0 without clients.
int64_t largest_client_top_k(const StudyRuns& study, std::span<const std::string> arms) {
  int64_t largest = 0;
  for (const auto& run : study.runs)
    if (run.records && std::find(arms.begin(), arms.end(), run.arm) != arms.end())
      for (const auto& cost : report::client_costs(*run.records)) largest = std::max(largest, cost.top_k);
  return largest;
}

/// Formats the number of runs, and of those with seconds if they are fewer.
std::string runs_text(const CostOfK& cost) {
  const bool some = cost.seconds_runs > 0 && cost.seconds_runs < cost.runs;
  return concat(cost.runs, some ? concat(" (", cost.seconds_runs, ")") : "");
}

}  // namespace

std::vector<int64_t> client_top_ks(const StudyRuns& study) {
  std::set<int64_t> all;
  for (const auto& run : study.runs)
    if (run.records)
      for (const auto& cost : report::client_costs(*run.records)) all.insert(cost.top_k);
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

ReportTable cost_by_k_table(std::span<const CostOfK> costs) {
  int64_t largest = 0;
  for (const auto& cost : costs)
    if (cost.runs > 0) largest = std::max(largest, cost.top_k);
  const auto share = largest > 0 ? concat("% of K=", largest) : "%";
  ReportTable table{.title = "cost of 1,000 tokens of training by experts per token (K), mean over runs",
                    .head = {"arm", "K", "FLOPs", share, "seconds", share, "runs"},
                    .rows = {},
                    .note =
                        "FLOPs are counted, seconds measured by each client while it trains; +-: half of the 95 % "
                        "interval (t). runs: with clients of that K; in brackets: with seconds, where fewer."};
  for (size_t i = 0; i < costs.size(); ++i) {
    const auto& cost = costs[i];
    const bool is_first = i == 0 || costs[i - 1].arm != cost.arm;
    table.rows.push_back({{.text = is_first ? cost.arm : "", .is_number = false},
                          {.text = cost.top_k > 0 ? std::to_string(cost.top_k) : "dense", .is_number = cost.top_k > 0},
                          flops_cell(cost),
                          share_cell(cost.flops_share),
                          seconds_cell(cost),
                          share_cell(cost.seconds_share),
                          {.text = runs_text(cost)}});
  }
  return table;
}

}  // namespace evenkeel::study
