#include "report/cost_by_k_table.h"

#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "base/plain/number_text.h"

namespace evenkeel::report {
namespace {

/// Formats a number with about four significant digits.
std::string digits(double value) {
  const double size = std::floor(std::log10(std::max(std::abs(value), 1e-9)));
  return fixed(value, std::clamp(3 - static_cast<int>(size), 0, 9));
}

Cell share_cell(const std::optional<double>& share) {
  return share ? Cell{.text = fixed(100 * *share, 1)} : Cell{.text = "-", .is_number = false};
}

Cell seconds_cell(const comparison::CostOfK& cost) {
  if (!cost.seconds) return {.text = "-", .is_number = false};
  const auto text = digits(*cost.seconds);
  const auto point = text.find('.');
  const int decimals = point == text.npos ? 0 : static_cast<int>(text.size() - point - 1);
  const auto& interval = cost.interval;
  return {.text = text,
          .interval = interval ? concat("+-", fixed((interval->high - interval->low) / 2, decimals)) : ""};
}

Cell flops_cell(const comparison::CostOfK& cost) {
  return {.text = cost.flops ? compact(*cost.flops) : "no client", .is_number = false};
}

/// Formats the number of runs, and of those with seconds if they are fewer.
std::string runs_text(const comparison::CostOfK& cost) {
  const bool some = cost.seconds_runs > 0 && cost.seconds_runs < cost.runs;
  return concat(cost.runs, some ? concat(" (", cost.seconds_runs, ")") : "");
}

}  // namespace

Table cost_by_k_table(std::span<const comparison::CostOfK> costs) {
  int64_t largest = 0;
  for (const auto& cost : costs)
    if (cost.runs > 0) largest = std::max(largest, cost.top_k);
  const auto share = largest > 0 ? concat("% of K=", largest) : "%";
  Table table{.title = "cost of 1,000 tokens of training by experts per token (K), mean over runs",
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

}  // namespace evenkeel::report
