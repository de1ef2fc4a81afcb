#include "privacy/adaptive_clip.h"

#include <cmath>

#include "base/plain/error.h"

namespace evenkeel::privacy {

double noise_beside_indicators(double noise, double indicator_noise) {
  const double of_indicators = 2 * indicator_noise;
  EK_CHECK(of_indicators > noise, kConfig, "privacy: the noise of the indicators is ", indicator_noise,
           ", allowed: above half the noise multiplier, ", noise / 2);
  return 1 / std::sqrt(1 / (noise * noise) - 1 / (of_indicators * of_indicators));
}

double next_clip(double clip, double share_within, double target, double rate) {
  return clip * std::exp(-rate * (share_within - target));
}

}  // namespace evenkeel::privacy
