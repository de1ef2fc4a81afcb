#include "privacy/member_noise.h"

#include <cmath>

#include "base/plain/error.h"
#include "privacy/adaptive_clip.h"
#include "privacy/discrete_gaussian.h"

namespace evenkeel::privacy {
namespace {

constexpr int64_t kLeastVariance = 64;  // a standard deviation of 8
constexpr double kWidestDraw = 8;       // standard deviations

/// Returns ceil(deviation^2 / honest).
int64_t share_of(double deviation, int64_t honest) {
  const double variance = std::ceil(deviation * deviation / static_cast<double>(honest));
  EK_CHECK(variance >= kLeastVariance && variance <= static_cast<double>(kMostVariance), kConfig, "privacy: noise of ",
           deviation, " steps, shared by ", honest, " clients, gives each a variance of ", variance,
           ", allowed: ", kLeastVariance, " to 2^56; choose another noise multiplier");
  return static_cast<int64_t>(variance);
}

/// Returns the multiplier of a sum of `honest` noises of a variance, for terms of a size.
double multiplier(int64_t variance, int64_t size, int64_t honest) {
  EK_CHECK(variance >= kLeastVariance && variance <= kMostVariance && honest >= 1, kConfig, "privacy: noise of ",
           honest, " clients with a variance of ", variance, ", allowed: ", kLeastVariance, " to 2^56");
  return std::sqrt(static_cast<double>(variance) * static_cast<double>(honest)) / static_cast<double>(size);
}

}  // namespace

MemberNoise member_noise(double noise, double indicator_noise, const Grid& grid, int64_t honest) {
  const auto bound = static_cast<double>(grid.bound);
  if (indicator_noise == 0) return {.variance = share_of(noise * bound, honest)};
  return {.variance = share_of(noise_beside_indicators(noise, indicator_noise) * bound, honest),
          .indicator = share_of(2 * indicator_noise * static_cast<double>(kIndicatorStep), honest)};
}

double noise_multiplier(const MemberNoise& noise, const Grid& grid, int64_t honest) {
  const double of_changes = multiplier(noise.variance, grid.bound, honest);
  if (noise.indicator == 0) return of_changes;
  const double of_indicators = multiplier(noise.indicator, kIndicatorStep, honest);
  return 1 / std::sqrt(1 / (of_changes * of_changes) + 1 / (of_indicators * of_indicators));
}

double largest_sum(const MemberNoise& noise, const Grid& grid, int64_t members) {
  const auto n = static_cast<double>(members);
  return n * static_cast<double>(grid.bound) + kWidestDraw * std::sqrt(n * static_cast<double>(noise.variance));
}

void add_member_noise(std::span<int64_t> change, const MemberNoise& noise, const crypto::Secret& key,
                      std::string_view run, int64_t round) {
  const auto at = static_cast<uint64_t>(round);
  const auto of_values = noise_seed(key, {run, at, concat("changes, variance ", noise.variance)}, change);
  const auto of_indicator = noise_seed(key, {run, at, concat("indicator, variance ", noise.indicator)}, change);
  add_discrete_gaussian(change.first(change.size() - 1), noise.variance, of_values);
  if (noise.indicator > 0) change.back() += DiscreteGaussian(of_indicator).draw(noise.indicator);
}

}  // namespace evenkeel::privacy
