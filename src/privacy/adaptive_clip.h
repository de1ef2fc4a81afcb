/// \file  Adapts the clip bound of clients' changes to a quantile of their norms (Andrew et al. 2021, "Differentially
/// private learning with adaptive clipping"). Each client says whether its norm is within the bound; the sum of these
/// indicators gets noise too.
#pragma once

namespace evenkeel::privacy {

/// Returns the noise multiplier of the sum of changes, (z^-2 - (2 s)^-2)^(-1/2), with which sum and indicators together
/// cost as much as one release with noise multiplier z.
/// \param indicator_noise  s: standard deviation of the noise in the number of clients within the bound
/// \throws kConfig unless 2 s > z
double noise_beside_indicators(double noise, double indicator_noise);

/// Returns the next bound, clip exp(-rate (share_within - target)). Its last bits depend on the C library, so a run
/// stores the bound.
double next_clip(double clip, double share_within, double target, double rate);

}  // namespace evenkeel::privacy
