#include "privacy/gaussian_epsilon.h"

#include <cmath>

#include "privacy/normal.h"

namespace evenkeel::privacy {

double gaussian_delta(double noise, double epsilon) {
  const double half = 1 / (2 * noise), shift = epsilon * noise;
  return std::exp(log_normal_cdf(half - shift)) - std::exp(epsilon + log_normal_cdf(-half - shift));
}

double gaussian_epsilon(double noise, double delta) {
  if (gaussian_delta(noise, 0) <= delta) return 0;
  double low = 0, high = 1;
  while (gaussian_delta(noise, high) > delta) high *= 2;
  while (high - low > 1e-12 * high) {
    const double middle = (low + high) / 2;
    (gaussian_delta(noise, middle) > delta ? low : high) = middle;
  }
  return high;
}

}  // namespace evenkeel::privacy
