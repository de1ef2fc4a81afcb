/// \file  Divides the noise of a private sum among its members, so that nobody is trusted with a sum before its noise.
/// Each member adds discrete Gaussian noise to its clipped change (privacy/noisy_sum.h). The sum of h members has noise
/// of h times the variance of one. It differs from a discrete Gaussian by less than 1e-270 of its probability, as the
/// standard deviation of a member is 8 or more.
/// Source: Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism for federated learning with
/// secure aggregation".
#pragma once

#include <cstdint>
#include <span>

#include "privacy/noisy_sum.h"

namespace evenkeel::privacy {

/// What a member whose norm is within the clip bound adds to the sum of indicators; others add its negative.
inline constexpr int64_t kIndicatorStep = 1024;

/// Variances of the noise of one member.
struct MemberNoise {
  int64_t variance = 0;   ///< of each value of the change
  int64_t indicator = 0;  ///< of the indicator; 0: no indicator is sent

  bool operator==(const MemberNoise& other) const = default;
  void visit(auto& field) {  // base/format/record.h
    field("variance", variance);
    field("indicator", indicator);
  }
};

/// Returns the noise of one member with which `honest` members together make a release with noise multiplier `noise`.
/// \param indicator_noise  standard deviation of the noise in the number of members within the bound; 0: no indicator
/// \throws kConfig when the noise is too large or too small for exact sums, or as noise_beside_indicators()
MemberNoise member_noise(double noise, double indicator_noise, const Grid& grid, int64_t honest);

/// Returns the noise multiplier of a release to which `honest` members added this noise. \throws kConfig when a
/// variance is too small or too large
double noise_multiplier(const MemberNoise& noise, const Grid& grid, int64_t honest);

/// Returns a magnitude that no value of a sum of `members` noisy changes exceeds: all changes at the bound, and 8
/// standard deviations of all noise.
double largest_sum(const MemberNoise& noise, const Grid& grid, int64_t members);

/// Adds a member's noise. The key of the noise depends on the change (noise_seed()).
/// \param change  the values and then the indicator, in steps of kIndicatorStep; 0 where none is sent
void add_member_noise(std::span<int64_t> change, const MemberNoise& noise, const crypto::Secret& key,
                      std::string_view run, int64_t round);

}  // namespace evenkeel::privacy
