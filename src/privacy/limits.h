/// \file  Bounds of the quantities of differential privacy. Within them the accountant was compared with others.
#pragma once

#include <cstdint>
#include <limits>

namespace evenkeel::privacy {

inline constexpr double kLeastNoise = 0.01, kMostNoise = 1000;  ///< of a noise multiplier
inline constexpr double kMostEpsilon = 1e6;
inline constexpr double kLeastDelta = 1e-300;
inline constexpr int64_t kMostReleases = int64_t{1} << 40;
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();  ///< no bound is known

}  // namespace evenkeel::privacy
