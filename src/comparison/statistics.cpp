#include "comparison/statistics.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "comparison/distributions.h"

namespace evenkeel::comparison {
namespace {

double sum_of_powers(std::span<const double> values, double about, int power) {
  double sum = 0;
  for (const double value : values) sum += std::pow(value - about, power);
  return sum;
}

bool all_equal(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [&](double value) { return value == values[0]; });
}

/// Returns the mean of a bootstrap sample of the items.
double resampled_mean(std::span<const double> items, RandomStream& stream, std::vector<float>& draws) {
  draws.resize(items.size());
  stream.fill_uniform(draws, 0, static_cast<double>(items.size()));
  double sum = 0;
  for (const float draw : draws) sum += items[std::min(static_cast<size_t>(draw), items.size() - 1)];
  return sum / static_cast<double>(items.size());
}

double resampled_value(const ItemsOfSeed& tasks, RandomStream& stream, std::vector<float>& draws) {
  double sum = 0;
  for (const auto& items : tasks) sum += resampled_mean(items, stream, draws);
  return sum / static_cast<double>(tasks.size());
}

double resample(std::span<const double> values, std::span<const ItemsOfSeed> items, RandomStream stream,
                std::vector<float>& draws) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto seed = stream.below(values.size());
    sum += items.empty() ? values[seed] : resampled_value(items[seed], stream, draws);
  }
  return sum / static_cast<double>(values.size());
}

/// Returns by how much two sums of the same values in different orders may differ, divided by their number.
double rounding_of(std::span<const double> values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return 1e-12 * largest;
}

/// Returns the share of `sorted` below `value`. Values that are equal up to `rounding` count half.
double share_below(std::span<const double> sorted, double value, double rounding) {
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), value - rounding);
  const auto last = std::upper_bound(first, sorted.end(), value + rounding);
  return static_cast<double>((first - sorted.begin()) + (last - sorted.begin())) /
         (2 * static_cast<double>(sorted.size()));
}

/// Returns the quantile of `sorted` with linear interpolation.
double quantile_of(std::span<const double> sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1), below = std::floor(place);
  const auto at = static_cast<size_t>(below);
  const double next = sorted[std::min(at + 1, sorted.size() - 1)];
  return sorted[at] + (place - below) * (next - sorted[at]);
}

/// Returns the acceleration of a mean: sum d^3 / (6 (sum d^2)^1.5) over the leave-one-out means.
double acceleration(std::span<const double> values) {
  const double mean = mean_of(values), squares = sum_of_powers(values, mean, 2);
  return squares > 0 ? sum_of_powers(values, mean, 3) / (6 * std::pow(squares, 1.5)) : 0;
}

/// Returns detectable_effect(pairs). It takes milliseconds and a report asks for it at every budget of every view, so
/// the results are kept.
double kept_detectable_effect(int64_t pairs) {
  static std::mutex mutex;
  static std::map<int64_t, double> kept;
  const std::lock_guard lock(mutex);
  const auto found = kept.find(pairs);
  return found != kept.end() ? found->second : kept.emplace(pairs, detectable_effect(pairs)).first->second;
}

}  // namespace

double mean_of(std::span<const double> values) {
  EK_CHECK(!values.empty(), kInternal, "the mean of no values");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values) {
  EK_CHECK(values.size() >= 2, kInternal, "the standard deviation of ", values.size(), " values");
  if (all_equal(values)) return 0;  // here the mean may be inexact
  return std::sqrt(sum_of_powers(values, mean_of(values), 2) / static_cast<double>(values.size() - 1));
}

bool are_alike(std::span<const double> values) {
  constexpr double kRounding = 1e-10;  // of differences of means, relative to the mean
  if (values.size() < 2) return false;
  const double mean = std::abs(mean_of(values));
  return mean > 0 && deviation_of(values) <= kRounding * mean;
}

std::optional<Interval> t_interval(std::span<const double> values, double alpha) {
  if (values.size() < 2) return std::nullopt;
  const double n = static_cast<double>(values.size()), mean = mean_of(values);
  const double half = -t_quantile(alpha / 2, n - 1) * deviation_of(values) / std::sqrt(n);
  return Interval{mean - half, mean + half};
}

std::optional<Interval> paired_interval(std::span<const double> differences) {
  return are_alike(differences) ? std::nullopt : t_interval(differences);
}

std::optional<double> t_test(std::span<const double> values) {
  if (values.size() < 2 || are_alike(values)) return std::nullopt;
  const double n = static_cast<double>(values.size()), mean = mean_of(values), deviation = deviation_of(values);
  if (deviation == 0) return 1;
  return t_two_sided(mean / (deviation / std::sqrt(n)), n - 1);
}

std::vector<double> holm(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> corrected(p_values.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, static_cast<double>(order.size() - rank) * p_values[order[rank]]);
    corrected[order[rank]] = std::min(1.0, largest);
  }
  return corrected;
}

std::optional<double> detectable_difference(std::span<const double> differences) {
  if (differences.size() < 2 || are_alike(differences) || deviation_of(differences) == 0) return std::nullopt;
  return kept_detectable_effect(static_cast<int64_t>(differences.size())) * deviation_of(differences);
}

std::vector<double> bootstrap_means(std::span<const double> values, std::span<const ItemsOfSeed> items,
                                    const BootstrapKey& key, int64_t resamples) {
  EK_CHECK(items.empty() || items.size() == values.size(), kInternal, "items of ", items.size(), " of ", values.size(),
           " seeds");
  std::vector<double> means(static_cast<size_t>(resamples));
  at::parallel_for(0, resamples, 100, [&](int64_t first, int64_t last) {
    std::vector<float> draws;
    for (int64_t i = first; i < last; ++i)
      means[static_cast<size_t>(i)] =
          resample(values, items, RandomStream(key.seed, key.purpose, static_cast<uint64_t>(i)), draws);
  });
  return means;
}

std::optional<Interval> bca_interval(std::span<const double> values, std::vector<double> resampled, double alpha) {
  if (values.size() < 2 || resampled.empty()) return std::nullopt;
  std::sort(resampled.begin(), resampled.end());
  const double below = share_below(resampled, mean_of(values), rounding_of(values));
  if (below <= 0 || below >= 1) return std::nullopt;
  const double bias = normal_quantile(below), skew = acceleration(values);
  const auto end = [&](double p) {
    const double z = bias + normal_quantile(p);
    return quantile_of(resampled, normal_cdf(bias + z / (1 - skew * z)));
  };
  return Interval{end(alpha / 2), end(1 - alpha / 2)};
}

}  // namespace evenkeel::comparison
