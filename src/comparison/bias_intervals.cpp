#include "comparison/bias_intervals.h"

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::comparison {
namespace {

using Run = std::vector<fed::GradientBias>;

/// Returns the values, or nothing if one of them is missing.
std::optional<std::vector<double>> all_of(std::span<const std::optional<double>> values) {
  std::vector<double> all;
  for (const auto& value : values) {
    if (!value) return std::nullopt;
    all.push_back(*value);
  }
  return all;
}

BiasEstimate estimate_of_run(const fed::GradientBias& one, const train::BiasMeasure& measure) {
  BiasEstimate estimate{.value = one.value.*measure.value};
  std::vector<std::optional<double>> left_out;
  for (const auto& rest : one.left_out) left_out.push_back(rest.*measure.value);
  if (const auto all = all_of(left_out); estimate.value && all)
    estimate.interval = jackknife_interval(*estimate.value, *all);
  return estimate;
}

BiasEstimate estimate_over_runs(std::span<const Run> runs, size_t row, const train::BiasMeasure& measure) {
  std::vector<std::optional<double>> values;
  for (const auto& run : runs) values.push_back(run[row].value.*measure.value);
  const auto all = all_of(values);
  return all ? BiasEstimate{mean_of(*all), t_interval(*all)} : BiasEstimate{};
}

void check_equal(std::span<const Run> runs) {
  const auto alike = [](const fed::GradientBias& x, const fed::GradientBias& y) {
    return x.of == y.of && x.layer == y.layer && x.top_k == y.top_k;
  };
  for (const auto& run : runs)
    EK_CHECK(std::equal(run.begin(), run.end(), runs[0].begin(), runs[0].end(), alike), kConfig,
             "the runs differ in layers or experts per token, allowed: runs of one base and equal evaluate.budgets");
}

}  // namespace

std::optional<Interval> jackknife_interval(double value, std::span<const double> left_out) {
  std::vector<double> pseudo_values;
  const auto n = static_cast<double>(left_out.size());
  for (const double rest : left_out) pseudo_values.push_back(n * value - (n - 1) * rest);
  const auto around_mean = t_interval(pseudo_values);
  if (!around_mean) return std::nullopt;
  const double half = (around_mean->high - around_mean->low) / 2;
  return Interval{value - half, value + half};
}

std::vector<BiasRow> bias_rows(std::span<const Run> runs) {
  check_equal(runs);
  std::vector<BiasRow> rows;
  for (size_t i = 0; i < runs[0].size(); ++i) {
    const auto& first = runs[0][i];
    auto& row = rows.emplace_back(BiasRow{first.of, first.layer, first.top_k});
    for (const auto& measure : train::kBiasMeasures)
      row.measures.push_back(runs.size() == 1 ? estimate_of_run(first, measure) : estimate_over_runs(runs, i, measure));
  }
  return rows;
}

}  // namespace evenkeel::comparison
