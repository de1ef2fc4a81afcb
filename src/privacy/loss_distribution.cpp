#include "privacy/loss_distribution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "privacy/gaussian_epsilon.h"
#include "privacy/limits.h"
#include "privacy/normal.h"

namespace evenkeel::privacy {
namespace {

constexpr double kStep = 1e-4;       // of the grid of losses
constexpr double kTailMass = 1e-15;  // left out by each composition, and counted as an infinite loss
constexpr int64_t kMostPoints = int64_t{1} << 24;

/// Selects which of two neighbouring data sets has the additional member.
enum class Direction { kRemove, kAdd };

/// Probabilities of the losses first * kStep, (first + 1) * kStep, ..., and of an infinite loss.
struct Distribution {
  int64_t first = 0;
  std::vector<double> mass;
  double infinite = 0;

  double loss(size_t i) const { return static_cast<double>(first + static_cast<int64_t>(i)) * kStep; }
};

/// Returns x with ln P(X <= x) = ln(1/2) - 50: what lies beyond is left out of the grid.
double tail_point() {
  double low = -20, high = 0;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (log_normal_cdf(middle) < std::log(0.5) - 50 ? low : high) = middle;
  }
  return high;
}

/// Returns ln(1 - q + q exp(a)).
double log_mixture(double q, double a) {
  if (q == 1) return a;
  return a > 0 ? a + std::log(q + (1 - q) * std::exp(-a)) : std::log1p(q * std::expm1(a));
}

/// Returns the privacy loss at the output x, which decreases with x.
double loss_at(const Event& event, Direction direction, double x) {
  const double variance = event.noise * event.noise;
  return direction == Direction::kRemove ? log_mixture(event.sampling, (-0.5 - x) / variance)
                                         : -log_mixture(event.sampling, (-0.5 + x) / variance);
}

/// Returns ln(1 + (exp(e) - 1) / q). REQUIRES e > ln(1 - q).
double log_odds(double q, double e) { return e > 500 ? e - std::log(q) : std::log1p(std::expm1(e) / q); }

double removed_delta(const Event& event, double e) {
  const double q = event.sampling, z = event.noise;
  if (q < 1 && e <= std::log1p(-q)) return -std::expm1(e);
  const double x = -0.5 - z * z * log_odds(q, e), log_here = log_normal_cdf(x / z);
  return (1 - q) * std::exp(log_here) + q * std::exp(log_normal_cdf((x + 1) / z)) - std::exp(e + log_here);
}

double added_delta(const Event& event, double e) {
  const double q = event.sampling, z = event.noise;
  if (e >= -std::log1p(-q)) return 0;
  const double x = 0.5 + z * z * log_odds(q, -e), log_here = log_normal_cdf(x / z);
  const double mixture = (1 - q) * std::exp(e + log_here) + q * std::exp(e + log_normal_cdf((x - 1) / z));
  return std::exp(log_here) - mixture;
}

/// Returns the hockey-stick divergence at each point of the grid, within [0, 1] and not increasing.
std::vector<double> deltas(const Event& event, Direction direction, int64_t first, int64_t last) {
  std::vector<double> found;
  double least = 1;
  for (int64_t i = first; i <= last; ++i) {
    const double e = static_cast<double>(i) * kStep;
    // Without sampling both directions have the same distribution.
    const double delta =
        direction == Direction::kAdd && event.sampling < 1 ? added_delta(event, e) : removed_delta(event, e);
    found.push_back(least = std::clamp(delta, 0.0, least));
  }
  return found;
}

/// Returns the distribution on the grid whose divergences equal the given ones at each point.
Distribution connected(int64_t first, const std::vector<double>& d) {
  const size_t n = d.size();
  const double up = std::expm1(kStep);
  Distribution result{first, std::vector<double>(n), d[n - 1]};
  result.mass[0] = 1 - d[0] + (d[1] - d[0]) / up;
  for (size_t i = 1; i + 1 < n; ++i) result.mass[i] = ((d[i + 1] - d[i]) - std::exp(kStep) * (d[i] - d[i - 1])) / up;
  result.mass[n - 1] = (d[n - 1] - d[n - 2]) / std::expm1(-kStep);
  for (auto& mass : result.mass) mass = std::max(0.0, mass);
  return result;
}

std::optional<Distribution> distribution_of(const Event& event, Direction direction) {
  const double tail = event.noise * tail_point();
  const bool remove = direction == Direction::kRemove || event.sampling == 1;
  const auto way = remove ? Direction::kRemove : Direction::kAdd;
  const double low_x = remove ? tail - 1 : tail, high_x = remove ? -tail : 1 - tail;
  const double first = std::floor(loss_at(event, way, high_x) / kStep),
               last = std::ceil(loss_at(event, way, low_x) / kStep);
  if (!(last - first < static_cast<double>(kMostPoints))) return std::nullopt;
  const auto begin = static_cast<int64_t>(first), end = std::max(static_cast<int64_t>(last), begin + 2);
  return connected(begin, deltas(event, way, begin, end));
}

/// Returns ln of the sum of mass_i exp(order i).
double log_moment(const std::vector<double>& mass, double order) {
  const auto n = static_cast<double>(mass.size() - 1);
  const double shift = order > 0 ? order * n : 0;  // |order| n <= 20, so no term underflows much
  double sum = 0;
  for (size_t i = 0; i < mass.size(); ++i) sum += mass[i] * std::exp(order * static_cast<double>(i) - shift);
  return shift + std::log(sum);
}

/// Returns the first and last index of the sum of `times` draws, outside of which lies at most kTailMass (Chernoff).
std::pair<int64_t, int64_t> bounds(const std::vector<double>& mass, int64_t times) {
  const auto n = static_cast<double>(mass.size());
  double low = 0, high = (n - 1) * static_cast<double>(times);
  for (int i = 1; i <= 20; ++i)
    for (const double order : {i / n, -i / n}) {
      const double bound = (static_cast<double>(times) * log_moment(mass, order) + std::log(2 / kTailMass)) / order;
      if (!std::isfinite(bound)) continue;
      if (order > 0) high = std::min(high, std::ceil(bound));
      if (order < 0) low = std::max(low, std::floor(bound));
    }
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

int64_t power_of_two(int64_t least) {
  int64_t size = 1;
  while (size < least) size *= 2;
  return size;
}

at::Tensor transformed(const std::vector<double>& mass, int64_t size) {
  return at::fft_rfft(at::tensor(mass, at::kDouble), size);
}

/// Returns base^times elementwise, by squaring.
at::Tensor power(at::Tensor base, int64_t times) {
  at::Tensor result;
  for (; times > 0; times /= 2) {
    if (times % 2 == 1) result = result.defined() ? result * base : base;
    if (times > 1) base = base * base;
  }
  return result;
}

/// Returns `count` values of an inverse transform from an index on, cyclically.
std::vector<double> inverted(const at::Tensor& transform, int64_t size, int64_t from, int64_t count) {
  const auto values = at::fft_irfft(transform, size).contiguous();
  const auto* data = values.const_data_ptr<double>();
  std::vector<double> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(std::max(0.0, data[(from + i) % size]));
  return result;
}

/// Returns the distribution of the sum of `times` independent losses.
std::optional<Distribution> composed(const Distribution& one, int64_t times) {
  if (times == 1) return one;
  const auto [low, high] = bounds(one.mass, times);
  const int64_t count = high - low + 1;
  if (count > kMostPoints) return std::nullopt;
  const int64_t size = power_of_two(std::max(count, static_cast<int64_t>(one.mass.size())));
  return Distribution{one.first * times + low, inverted(power(transformed(one.mass, size), times), size, low, count),
                      kTailMass - std::expm1(static_cast<double>(times) * std::log1p(-one.infinite))};
}

std::optional<Distribution> composed(const Distribution& a, const Distribution& b) {
  const auto count = static_cast<int64_t>(a.mass.size() + b.mass.size() - 1);
  if (count > kMostPoints) return std::nullopt;
  const int64_t size = power_of_two(count);
  return Distribution{a.first + b.first,
                      inverted(transformed(a.mass, size) * transformed(b.mass, size), size, 0, count),
                      a.infinite + b.infinite - a.infinite * b.infinite};
}

double epsilon_of(const Distribution& distribution, double delta) {
  if (distribution.infinite > delta) return kInfinite;
  double upper = distribution.infinite, lower = 0;
  for (size_t i = distribution.mass.size(); i-- > 0;) {
    const double loss = distribution.loss(i);
    if (upper > delta && lower > 0 && std::log((upper - delta) / lower) >= loss) break;
    upper += distribution.mass[i];
    lower += std::exp(-loss) * distribution.mass[i];
    if (upper >= delta && lower == 0) return loss;
  }
  return upper <= lower + delta ? 0 : std::max(0.0, std::log((upper - delta) / lower));
}

std::optional<double> epsilon_in(std::span<const Releases> releases, Direction direction, double delta) {
  std::optional<Distribution> all;
  for (const auto& some : releases) {
    const auto one = distribution_of(some.event, direction);
    const auto sum = one ? composed(*one, some.times) : std::nullopt;
    if (!sum) return std::nullopt;
    all = all ? composed(*all, *sum) : sum;
    if (!all) return std::nullopt;
  }
  return epsilon_of(*all, delta);
}

}  // namespace

std::optional<double> loss_distribution_epsilon(std::span<const Releases> releases, double delta) {
  double precision = 0;  // sum of 1/z^2 of the releases without sampling, which are one release together
  std::vector<Releases> rest;
  for (const auto& some : releases) {
    if (some.event.sampling == 1)
      precision += static_cast<double>(some.times) / (some.event.noise * some.event.noise);
    else if (some.times > 0)
      rest.push_back(some);
  }
  const double noise = precision > 0 ? 1 / std::sqrt(precision) : 0;
  if (rest.empty()) return noise > 0 ? gaussian_epsilon(noise, delta) : 0;
  if (noise > 0) rest.push_back({{.noise = noise}, 1});
  const auto removed = epsilon_in(rest, Direction::kRemove, delta), added = epsilon_in(rest, Direction::kAdd, delta);
  if (!removed || !added) return std::nullopt;
  return std::max(*removed, *added);
}

}  // namespace evenkeel::privacy
