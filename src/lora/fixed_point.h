/// \file  Sums of tensors whose bits depend on the terms alone: neither on their order, nor on how they are grouped,
/// nor on how many processes hold them. Terms are rounded to integers once, on a scale that their largest magnitude and
/// their number fix, and integers add up exactly (docs/decisions/0043-sums-in-fixed-point.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace evenkeel {

/// Everybody who holds terms of the same sums.
class Reduction {
 public:
  virtual ~Reduction() = default;
  /// Replaces each value by the largest, or by the sum, of those that everybody brings: as many, in the same order of
  /// calls.
  virtual void max(std::span<int64_t> values) const = 0;
  virtual void sum(std::span<int64_t> values) const = 0;
};

/// weight * values, in float64.
struct Term {
  at::Tensor values;  ///< floating point; undefined: nothing to add
  double weight = 1;
  at::Tensor weights_E{};  ///< float64, of a stack [E, ...]: a weight per matrix, beside the one of all
};

/// The terms of a sum that are here. Each is asked for once, and all are in memory together: views of mapped files are
/// best, which cost nothing.
struct Terms {
  size_t here = 0;
  size_t global_term_count = 0;  ///< with those of others, or more
  std::function<Term(size_t i)> at;
  std::function<std::string(size_t i)> who{};  ///< whose a term is, for errors
};

/// sum_i weight_i values_i, float64 for such values and float32 for all others; undefined where no term is. With M the
/// largest magnitude of a term and n = `global_term_count`, 2^e <= 2^62 / (n M) is the scale: no sum can overflow, an
/// error is at most n^2 M 2^-61, or n 2^-960, before the result is rounded to its type.
/// \throws kNumeric naming whose term is not finite, kShape whose differs in shape. Cost: one read of each term from
/// memory, in blocks that a cache holds; those that were summed before the largest magnitude was seen are summed again.
at::Tensor fixed_point_sum(const Terms& terms);
/// The same of terms some of which others hold: everybody calls it. Integers of the size of the sum are exchanged.
at::Tensor fixed_point_sum(const Terms& terms, const Reduction& others);

/// The same of weights and parts at hand. \throws kShape when there are none, or not as many.
at::Tensor weighted_mean(std::span<const at::Tensor> parts, std::span<const double> weights);

}  // namespace evenkeel
