#include "records/phi_correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace evenkeel::records {
namespace {

std::vector<double> flat(const std::vector<std::vector<double>>& values_LE) {
  std::vector<double> all;
  for (const auto& values_E : values_LE) all.insert(all.end(), values_E.begin(), values_E.end());
  return all;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the sum of (x - mean x) (y - mean y).
double co_moment(const std::vector<double>& x, const std::vector<double>& y) {
  const double mean_x = mean(x), mean_y = mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - mean_x) * (y[i] - mean_y);
  return sum;
}

double pearson(const std::vector<double>& x, const std::vector<double>& y) {
  const double variances = co_moment(x, x) * co_moment(y, y);
  return variances > 0 ? co_moment(x, y) / std::sqrt(variances) : 0;
}

/// Returns ranks from 1. Equal values get their mean rank.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (size_t i = first; i < end; ++i) rank[order[i]] = static_cast<double>(first + 1 + end) / 2;
    first = end;
  }
  return rank;
}

}  // namespace

std::vector<std::vector<double>> phi_of(const fed::RoundRecord& round) {
  std::vector<std::vector<double>> phi_LE;
  if (!round.experts) return phi_LE;
  for (const auto& layer : round.experts->layers) {
    const auto found = round.diagnostics.lists.find(layer + ".phi");
    if (found == round.diagnostics.lists.end()) return {};
    phi_LE.push_back(found->get<std::vector<double>>());
  }
  return phi_LE;
}

PhiCorrelation phi_correlation(const std::vector<std::vector<double>>& phi_LE,
                               const std::vector<std::vector<double>>& utilization_LE) {
  const auto phi = flat(phi_LE), use = flat(utilization_LE);
  const double spread = co_moment(use, use);
  PhiCorrelation out{.pearson = pearson(use, phi), .spearman = pearson(ranks(use), ranks(phi))};
  out.slope = spread > 0 ? co_moment(use, phi) / spread : 0;
  out.intercept = mean(phi) - out.slope * mean(use);
  return out;
}

}  // namespace evenkeel::records
