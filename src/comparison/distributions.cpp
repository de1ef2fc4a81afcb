#include "comparison/distributions.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/plain/error.h"

namespace evenkeel::comparison {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kTiny = 1e-300;  // replaces a denominator of 0

double not_zero(double value) { return std::abs(value) < kTiny ? kTiny : value; }

/// The state of Lentz's method: the current value, and the ratios of successive numerators and denominators.
struct Lentz {
  double value, numerators, denominators;
  /// Appends a term a / (1 + ...). Returns the factor by which the value changes.
  double append(double a) {
    denominators = 1 / not_zero(1 + a * denominators);
    numerators = not_zero(1 + a / numerators);
    value *= numerators * denominators;
    return numerators * denominators;
  }
};

/// Returns the continued fraction of I_x(a, b) without its leading factor.
double beta_fraction(double a, double b, double x) {
  constexpr int kMost = 100000;
  const double first = 1 / not_zero(1 - (a + b) * x / (a + 1));
  Lentz fraction{first, 1, first};
  for (int m = 1; m <= kMost; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    fraction.append(even);
    if (std::abs(fraction.append(odd) - 1) <= kEpsilon) break;
  }
  return fraction.value;
}

/// Returns x^a (1 - x)^b / (a B(a, b)).
double beta_factor(double a, double b, double x) {
  const double log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  return std::exp(a * std::log(x) + b * std::log1p(-x) - log_beta) / a;
}

/// Returns where a monotone function changes from true to false, to the last bit. REQUIRES true at `low`, false at
/// `high`.
template <typename Below>
double bisect(double low, double high, const Below& below) {
  for (;;) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return middle;
    (below(middle) ? low : high) = middle;
  }
}

/// Works like bisect(), with 0 as the lower end and an upper end that is found by doubling.
template <typename Below>
double bisect_upwards(const Below& below) {
  double high = 1;
  while (below(high)) high *= 2;
  return bisect(0, high, below);
}

/// Returns the density of sqrt(chi^2 / freedom) at s > 0.
double root_density(double s, double freedom) {
  const double half = freedom / 2;
  return 2 * std::exp(half * std::log(half) - std::lgamma(half) + (freedom - 1) * std::log(s) - half * s * s);
}

/// Returns the integral of `f` from low to high by the Gauss-Legendre rule of five points on equal panels.
template <typename Function>
double integral(double low, double high, const Function& f) {
  constexpr int kPanels = 600;
  const double inner = std::sqrt(5 - 2 * std::sqrt(10.0 / 7)) / 3, outer = std::sqrt(5 + 2 * std::sqrt(10.0 / 7)) / 3;
  const double near = (322 + 13 * std::sqrt(70.0)) / 900, far = (322 - 13 * std::sqrt(70.0)) / 900;
  const double half = (high - low) / kPanels / 2;
  double sum = 0;
  for (int panel = 0; panel < kPanels; ++panel) {
    const double middle = low + (2 * panel + 1) * half;
    sum += 128.0 / 225 * f(middle) + near * (f(middle - inner * half) + f(middle + inner * half)) +
           far * (f(middle - outer * half) + f(middle + outer * half));
  }
  return sum * half;
}

void check_probability(double p) {
  EK_CHECK(p > 0 && p < 1, kInternal, "a quantile of probability ", p, ", allowed: above 0, below 1");
}

}  // namespace

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double normal_quantile(double p) {
  check_probability(p);
  if (p > 0.5) return -normal_quantile(1 - p);
  return bisect(-40, 0, [&](double x) { return normal_cdf(x) < p; });
}

double incomplete_beta(double a, double b, double x) {
  EK_CHECK(a > 0 && b > 0 && x >= 0 && x <= 1, kInternal, "incomplete beta of ", a, ", ", b, " at ", x);
  if (x == 0 || x == 1) return x;
  if (x < (a + 1) / (a + b + 2)) return beta_factor(a, b, x) * beta_fraction(a, b, x);
  return 1 - beta_factor(b, a, 1 - x) * beta_fraction(b, a, 1 - x);
}

double t_two_sided(double t, double freedom) {
  const double square = t * t;
  if (std::isinf(square)) return 0;
  if (square < 1) return 1 - incomplete_beta(0.5, freedom / 2, square / (freedom + square));
  return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square));
}

double t_cdf(double t, double freedom) {
  const double tail = t_two_sided(t, freedom) / 2;
  return t < 0 ? tail : 1 - tail;
}

double t_quantile(double p, double freedom) {
  check_probability(p);
  if (p > 0.5) return -t_quantile(1 - p, freedom);
  return -bisect_upwards([&](double t) { return t_two_sided(t, freedom) > 2 * p; });
}

double paired_t_power(double effect, int64_t pairs, double alpha) {
  const double freedom = static_cast<double>(pairs - 1), critical = -t_quantile(alpha / 2, freedom);
  const double shift = effect * std::sqrt(static_cast<double>(pairs)), reach = 12 / std::sqrt(freedom);
  return integral(std::max(0.0, 1 - reach), 1 + reach, [&](double s) {
    return (normal_cdf(shift - critical * s) + normal_cdf(-shift - critical * s)) * root_density(s, freedom);
  });
}

double detectable_effect(int64_t pairs, double alpha, double power) {
  EK_CHECK(pairs >= 2 && alpha < power && power < 1, kInternal, "a detectable effect of ", pairs, " pairs");
  return bisect_upwards([&](double effect) { return paired_t_power(effect, pairs, alpha) < power; });
}

}  // namespace evenkeel::comparison
