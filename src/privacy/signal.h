/// \file  Compares the norm of a sum with the norm of the privacy noise in it.
#pragma once

#include <string>

namespace evenkeel::privacy {

/// A sum whose norm is below this multiple of its noise's norm is mostly noise.
inline constexpr double kMostlyNoise = 0.1;

/// Returns "0.052 times their noise: mostly noise, expect little learning"; from kMostlyNoise on without the remark.
/// \param signal  norm of a sum divided by the norm of its noise
std::string beside_noise(double signal);

}  // namespace evenkeel::privacy
