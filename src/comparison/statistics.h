/// \file  Computes statistics of paired comparisons over seeds. All functions are pure. Formulas and sources:
/// docs/study-statistics.md. tests/parity/test_statistics.py compares them with scipy and statsmodels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace evenkeel::comparison {

/// An interval; both ends belong to it.
struct Interval {
  double low = 0, high = 0;
};

/// Returns the mean. REQUIRES at least one value.
double mean_of(std::span<const double> values);
/// Returns the sample standard deviation (divisor n - 1). REQUIRES at least two values.
double deviation_of(std::span<const double> values);

/// Returns true for two or more values that are equal up to rounding and not zero. They have no spread that a t-test or
/// its interval could be based on: differences of shares of a few hundred rows are often equal in two or three seeds.
bool are_alike(std::span<const double> values);

/// Returns mean +- t(1 - alpha / 2, n - 1) s / sqrt(n). Returns nothing for fewer than two values.
std::optional<Interval> t_interval(std::span<const double> values, double alpha = 0.05);
/// Returns the 95 % t_interval() of differences; nothing if they are_alike().
std::optional<Interval> paired_interval(std::span<const double> differences);
/// Returns the two-sided p-value of the t-test of mean 0. For differences this is the paired t-test. It is 1 if all
/// values are zero. Returns nothing for fewer than two values, or if they are_alike().
std::optional<double> t_test(std::span<const double> values);

/// Returns p-values corrected by Holm's step-down method (1979), in the order of `p_values`.
std::vector<double> holm(std::span<const double> p_values);

/// Returns the smallest mean difference that the paired t-test detects with 80 % power at the two-sided 5 % level, if
/// the true standard deviation equals the one of `differences`. Returns nothing for fewer than two differences, or if
/// all are equal.
std::optional<double> detectable_difference(std::span<const double> differences);

/// Values of the single items of every task of one seed: [task][item].
using ItemsOfSeed = std::vector<std::vector<double>>;

/// Identifies the random numbers of a bootstrap: the same key gives the same resamples on every machine and with any
/// number of threads.
struct BootstrapKey {
  uint64_t seed = 0;
  std::string purpose;
};

inline constexpr int64_t kResamples = 10'000;

/// Returns the mean of every bootstrap resample. A resample draws n of the n seeds with replacement. If `items` is not
/// empty, the items of each task of each drawn seed are drawn again too, as many as there are, with replacement. The
/// value of a seed is then the mean over tasks of the means over items. Resamples are computed in parallel.
/// \param values  one per seed
/// \param items   empty, or one entry per seed, without empty tasks
std::vector<double> bootstrap_means(std::span<const double> values, std::span<const ItemsOfSeed> items,
                                    const BootstrapKey& key, int64_t resamples = kResamples);

/// Returns the bias-corrected and accelerated interval of a mean (Efron 1987), with the acceleration of the jackknife
/// over seeds. Returns nothing for fewer than two values, or if all resamples are on one side of the mean.
/// \param resampled  bootstrap_means() of the same values
std::optional<Interval> bca_interval(std::span<const double> values, std::vector<double> resampled,
                                     double alpha = 0.05);

}  // namespace evenkeel::comparison
