/// \file  Makes a sum of clients' changes private: each change becomes integers of a bounded norm, and the sum receives
/// discrete Gaussian noise. With d values and clip bound S:
///
///   Delta = 2^ceil(log2(128 sqrt(d)))    gamma = S / Delta    T = Delta - sqrt(d) / 2
///   f = min(1, T (1 - 2^-20) / (|x| / gamma))    y = rint(f x / gamma)    |y| <= Delta
///
/// All functions give the same bits on every machine and with any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crypto/secret.h"

namespace evenkeel::privacy {

/// The integers to which changes are rounded.
struct Grid {
  double step = 0;    ///< gamma: the value of integer 1
  int64_t bound = 0;  ///< Delta: the largest Euclidean norm, in integers
  double target = 0;  ///< T: the largest norm before rounding, so that rounding cannot exceed the bound
};

/// Returns the grid of changes of `values` values. \throws kConfig unless clip > 0 and finite and values >= 1
Grid grid_of(int64_t values, double clip);

/// A change as integers.
struct ClippedChange {
  std::vector<int64_t> values;
  double factor = 1;   ///< f times the weight
  bool within = true;  ///< its norm was at most the clip bound
};

/// Returns the Euclidean norm, in float64. \throws kNumeric for a value that is not finite
double norm_of(std::span<const float> change);
/// Scales a change to the bound of the grid, multiplies it by a weight in [0, 1] and rounds it. \throws kNumeric for a
/// value that is not finite
ClippedChange clipped(std::span<const float> change, const Grid& grid, double weight = 1);

/// Returns ceil((noise Delta)^2), the variance of the noise per value of a sum. \throws kConfig when it is above 2^56
int64_t noise_variance(double noise, const Grid& grid);

/// What noise is drawn for. Equal sums receive equal noise, so a repeated release shows nothing new. Different sums
/// receive independent noise, so the difference of two releases does not cancel the noise.
struct NoisePurpose {
  std::string_view run;
  uint64_t round = 0;
  std::string_view name;  ///< of the tensor
};

/// Returns the SHA-256 of a sum, with its values as int64, lowest byte first.
crypto::Bytes32 digest_of(std::span<const int64_t> sum);

/// Returns HKDF-Expand(key, "evenkeel dp noise 1" 0 run 0 round name 0 digest_of(sum)).
crypto::Secret noise_seed(const crypto::Secret& key, const NoisePurpose& purpose, std::span<const int64_t> sum);

}  // namespace evenkeel::privacy
