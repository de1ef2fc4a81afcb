/// \file  The exact epsilon of one Gaussian release.
#pragma once

namespace evenkeel::privacy {

/// Returns the delta of one release with noise multiplier `noise` at an epsilon (Balle and Wang 2018, Theorem 5).
double gaussian_delta(double noise, double epsilon);
/// Returns the least epsilon >= 0 of one release at a delta. Several releases without sampling equal one release with
/// 1/z^2 = sum of 1/z_i^2.
double gaussian_epsilon(double noise, double delta);

}  // namespace evenkeel::privacy
