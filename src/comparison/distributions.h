/// \file  Computes distribution functions and quantiles of the normal and of Student's t distribution, and the power of
/// a paired t-test. Results agree with scipy.stats and statsmodels to 1e-10 (tests/parity/test_statistics.py). All
/// functions are pure.
#pragma once

#include <cstdint>

namespace evenkeel::comparison {

/// Returns P(Z <= x) of N(0, 1).
double normal_cdf(double x);
/// Returns the x with P(Z <= x) = p. REQUIRES 0 < p < 1.
double normal_quantile(double p);

/// Returns the regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22, evaluated by
/// Lentz's method). REQUIRES a, b > 0 and 0 <= x <= 1.
double incomplete_beta(double a, double b, double x);

/// Returns P(|T| >= |t|) of Student's t distribution with `freedom` degrees of freedom. REQUIRES freedom > 0.
double t_two_sided(double t, double freedom);
/// Returns P(T <= t).
double t_cdf(double t, double freedom);
/// Returns the t with P(T <= t) = p. REQUIRES 0 < p < 1.
double t_quantile(double p, double freedom);

/// Returns the probability that a two-sided paired t-test of `pairs` pairs rejects, if the true mean difference is
/// `effect` standard deviations of the differences. It integrates the noncentral t distribution. REQUIRES pairs >= 2.
double paired_t_power(double effect, int64_t pairs, double alpha);
/// Returns the smallest effect that a two-sided paired t-test of `pairs` pairs detects with probability `power`.
/// REQUIRES pairs >= 2, alpha < power < 1.
double detectable_effect(int64_t pairs, double alpha = 0.05, double power = 0.8);

}  // namespace evenkeel::comparison
