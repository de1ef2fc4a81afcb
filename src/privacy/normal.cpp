#include "privacy/normal.h"

#include <cmath>
#include <numbers>

namespace evenkeel::privacy {
namespace {

/// Returns ln P(X <= x) for x far below 0 (Abramowitz and Stegun 26.2.12).
double log_lower_tail(double x) {
  const double s = 1 / (x * x);
  const double series = -s * (1 - s * (3 - s * (15 - s * (105 - s * 945))));
  return -x * x / 2 - std::log(-x) - std::log(2 * std::numbers::pi) / 2 + std::log1p(series);
}

}  // namespace

double log_normal_cdf(double x) {
  if (x > 0) return std::log1p(-std::erfc(x / std::numbers::sqrt2) / 2);
  if (x > -37) return std::log(std::erfc(-x / std::numbers::sqrt2) / 2);
  return log_lower_tail(x);
}

double log_erfc(double x) { return std::numbers::ln2 + log_normal_cdf(-x * std::numbers::sqrt2); }

}  // namespace evenkeel::privacy
