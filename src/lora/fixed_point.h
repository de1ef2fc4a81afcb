/// \file  Sums tensors so that the bits of the result depend only on the terms, not on their order, their grouping or
/// the number of processes that hold them. Each value of a term is rounded once to an integer, with a scale that
/// depends on the largest magnitude and the number of terms. Sums of integers are exact
/// (docs/decisions/0043-sums-in-fixed-point.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace evenkeel::lora {

/// Reduces values over all processes that hold terms of the same sum. All processes must make the same calls in the
/// same order, with equally many values.
class Reduction {
 public:
  virtual ~Reduction() = default;
  /// Replaces each value by its maximum over all processes.
  virtual void max(std::span<int64_t> values) const = 0;
  /// Replaces each value by its sum over all processes.
  virtual void sum(std::span<int64_t> values) const = 0;
};

/// One term of a sum: weight * values, computed in float64.
struct Term {
  at::Tensor values;  ///< floating point; an undefined tensor adds nothing
  double weight = 1;
  at::Tensor weights_E{};  ///< float64; for a stack [E, ...], an additional weight per matrix
};

/// The terms of a sum that this process holds. at(i) is called once per term, and all terms are in memory together, so
/// views of mapped files are the best choice.
struct Terms {
  size_t here = 0;               ///< number of terms in this process
  size_t global_term_count = 0;  ///< number of terms in all processes, or more
  std::function<Term(size_t i)> at;
  std::function<std::string(size_t i)> who{};  ///< the owner of a term, for errors
};

/// Returns sum_i weight_i values_i, in float64 if the values are float64, otherwise in float32; undefined when all
/// terms are. With M the largest magnitude of a term and n = `global_term_count`, the scale is 2^e <= 2^62 / (n M): no
/// sum can overflow. Before the result is rounded to its dtype, its error is at most n^2 M 2^-61, or n 2^-960 for very
/// small M.
/// \throws kNumeric naming the owner of a term that is not finite, kShape for a term of another shape.
/// Cost: one read of each term from memory, in blocks that fit a cache. Blocks that were summed before the largest
/// magnitude was known are summed again.
at::Tensor fixed_point_sum(const Terms& terms);
/// Works as fixed_point_sum(terms) when other processes hold some of the terms. All processes must call it. They
/// exchange integers of the size of the sum.
at::Tensor fixed_point_sum(const Terms& terms, const Reduction& others);

/// Returns sum_i weights[i] parts[i] as fixed_point_sum() does. The caller normalises the weights. \throws kShape when
/// there are no parts, or not as many weights.
at::Tensor weighted_mean(std::span<const at::Tensor> parts, std::span<const double> weights);

}  // namespace evenkeel::lora
