/// \file  The distribution function of the standard normal distribution, also far in its tails.
#pragma once

namespace evenkeel::privacy {

/// Returns ln P(X <= x) of a standard normal X, with a relative error below 1e-11.
double log_normal_cdf(double x);
/// Returns ln erfc(x).
double log_erfc(double x);

}  // namespace evenkeel::privacy
