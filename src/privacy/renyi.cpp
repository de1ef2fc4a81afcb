#include "privacy/renyi.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "privacy/limits.h"
#include "privacy/normal.h"

namespace evenkeel::privacy {
namespace {

std::vector<double> make_orders() {
  std::vector<double> orders;
  for (int tenths = 11; tenths < 110; ++tenths) orders.push_back(tenths / 10.0);
  for (int order = 11; order < 64; ++order) orders.push_back(order);
  for (const int order : {128, 256, 512, 1024}) orders.push_back(order);
  return orders;
}

/// Returns ln(exp(a) + exp(b)).
double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == -kInfinite ? high : high + std::log1p(std::exp(low - high));
}

double log_binomial(int n, int k) { return std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0); }

/// Returns ln E[(P/Q)^order] for an integer order: a sum of order + 1 terms.
double log_moment(double q, double z, int order) {
  const double log_q = std::log(q), log_rest = std::log1p(-q);
  double sum = -kInfinite;
  for (int i = 0; i <= order; ++i)
    sum = log_add(sum, log_binomial(order, i) + i * log_q + (order - i) * log_rest +
                           (static_cast<double>(i) * i - i) / (2 * z * z));
  return sum;
}

/// Returns ln E[(P/Q)^order] for a fractional order: two series, of the integrals below and above the point z0 where
/// both densities of the mixture are equal. The binomial coefficients change their sign after the first terms; their
/// absolute values are added, which gives an upper bound, as in dp-accounting. Infinite when the series did not
/// converge.
double log_fractional_moment(double q, double z, double order) {
  constexpr int kMostTerms = 1000;
  constexpr double kNegligible = 30;  // natural log
  const double log_q = std::log(q), log_rest = std::log1p(-q), z0 = z * z * std::log(1 / q - 1) + 0.5;
  double sum = -kInfinite, below_before = -kInfinite, above_before = -kInfinite, log_coefficient = 0;
  for (int i = 0; i < kMostTerms; ++i) {
    const double j = order - i, n = i;
    const double below = log_coefficient + n * log_q + j * log_rest + (n * n - n) / (2 * z * z) - std::numbers::ln2 +
                         log_erfc((n - z0) / (std::numbers::sqrt2 * z));
    const double above = log_coefficient + j * log_q + n * log_rest + (j * j - j) / (2 * z * z) - std::numbers::ln2 +
                         log_erfc((z0 - j) / (std::numbers::sqrt2 * z));
    sum = log_add(sum, log_add(below, above));
    if (below < below_before && above < above_before && std::max(below, above) < sum - kNegligible) return sum;
    below_before = below, above_before = above;
    log_coefficient += std::log(std::abs(j)) - std::log(n + 1);
  }
  return kInfinite;
}

}  // namespace

std::span<const double> renyi_orders() {
  static const auto orders = make_orders();
  return orders;
}

double renyi_divergence(const Event& event, double order, Orders orders) {
  const double q = event.sampling, z = event.noise;
  if (q == 1) return order / (2 * z * z);
  const bool integer = order == std::floor(order);
  if (!integer && orders == Orders::kEnforced) return kInfinite;
  const double moment = integer ? log_moment(q, z, static_cast<int>(order)) : log_fractional_moment(q, z, order);
  return std::max(0.0, moment / (order - 1));
}

}  // namespace evenkeel::privacy
