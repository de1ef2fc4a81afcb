/// \file  Maps numbers to integers modulo 2^b, so that sums are exact in any order and a mask hides a value completely.
/// The scale is fixed before the round: it depends on the range of the values and on the number of members, never on
/// the values themselves.
/// Example:  const auto format = RingFormat::of(32, 0.125, 8);
///           auto total = format.zeros(n);  encode({change, weight}, format, {}, own);  add_to(total, own);
///           decode(total, format, 1.0);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "crypto/secret.h"
#include "lora/fixed_point.h"

namespace evenkeel::secure {

/// Integers modulo 2^bits, stored as int16, int32 or int64, and the scale 2^exponent of values in [-range, range].
struct RingFormat {
  int64_t bits = 32;
  int exponent = 0;
  double range = 0;

  /// Chooses the largest scale with which weighted values of `members` members, whose weights add up to 1, cannot
  /// overflow: 2^e <= (2^(b-1) - 1 - members) / range; with 64 bits 2^e <= 2^62 / range, because products are rounded
  /// to 53 bits before they become integers.
  /// \throws kConfig unless bits is 16, 32 or 64, range is a positive number and 1 <= members <= 100
  static RingFormat of(int64_t bits, double range, int64_t members);
  at::ScalarType type() const;
  at::Tensor zeros(int64_t count) const;  ///< [count] of type()
  bool operator==(const RingFormat& other) const = default;
};

/// Largest number of members of a round: each agrees on a key with every other one.
inline constexpr int64_t kMostMembers = 100;

/// Uniform numbers in [0, 1) for rounding, from the ChaCha20 stream of a key. \param first  index of the first number
struct StochasticRounding {
  const crypto::Secret& key;
  int64_t first = 0;
};

/// Writes y = rint(w clamp(x, -range, range) 2^exponent) modulo 2^bits over `out`, for all values of a term; ties go to
/// even. With 16 bits, where a step is coarse, pass a key: then y is floor(... + u), u uniform in [0, 1) from its
/// ChaCha20 stream, which has no bias.
/// \param term      weight * values, or weight * weights_E * values with one weight per matrix; weights are in [0, 1]
/// \param rounding  nothing: to nearest
/// \param out_N     a contiguous view of format.type(), [values]
/// \return the number of values beyond the range
/// \throws kNumeric when a value is not finite; kShape when the sizes differ
int64_t encode(const lora::Term& term, const RingFormat& format, const std::optional<StochasticRounding>& rounding,
               const at::Tensor& out_N);

/// Adds `other` to `total` modulo 2^bits. Both are [N] of one integer type. \throws kShape otherwise
void add_to(const at::Tensor& total_N, const at::Tensor& other_N);

/// Returns total 2^-exponent / divisor. \return [N] float32
at::Tensor decode(const at::Tensor& total_N, const RingFormat& format, double divisor);

/// Returns integers modulo 2^bits as int64, so that processes can sum them.
at::Tensor widened(const at::Tensor& ring_N);
/// Returns such a sum modulo 2^bits. \param type  RingFormat::type()
at::Tensor narrowed(const at::Tensor& wide_N, at::ScalarType type);

}  // namespace evenkeel::secure
