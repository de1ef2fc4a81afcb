/// \file  Says how large a sum is beside the noise of privacy in it.
#pragma once

#include <string>

namespace evenkeel::privacy {

/// A signal below this many times its noise is hard to see.
inline constexpr double kMostlyNoise = 0.1;

/// Returns "0.052 times their noise: mostly noise, expect little learning".
/// \param signal  norm of a sum divided by that of its noise
std::string beside_noise(double signal);

}  // namespace evenkeel::privacy
