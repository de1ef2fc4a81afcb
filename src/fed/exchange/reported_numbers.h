/// \file  Bounds of the numbers that a client reports. Sums of such numbers over all clients and rounds, their means,
/// their squares and rates per second stay finite. So the records of a run stay readable, whatever a client sends.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/format/limits.h"

namespace evenkeel::fed {

inline constexpr double kMostMeasure = 1e100;  ///< |metrics| and |log-likelihoods|
inline constexpr double kMostLoss = 1e6;       ///< nats per target token, in training
inline constexpr double kMostRowNats = 1e6;    ///< nats of the correct answer to one row
inline constexpr double kMostNll = 700;        ///< nats per token of a score, whose perplexity is exp(nll)
/// Seconds that are not 0: from the resolution of the clock to 30 years.
inline constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e9;
inline constexpr int64_t kMostAnswerTokens = int64_t{1} << 40;  ///< answer tokens of a score
inline constexpr double kMostValue = limits::kScale;            ///< |values| and scalings of an upload
inline constexpr double kMostGradient = 1e18;  ///< |values| of a sum of gradients; their squares fit into float32

/// Return true if a number is within the bounds above. Both return false for NaN.
inline bool is_measure(double value) { return std::abs(value) <= kMostMeasure; }
inline bool is_duration(double seconds) {
  return seconds == 0 || (seconds >= kLeastSeconds && seconds <= kMostSeconds);
}

}  // namespace evenkeel::fed
