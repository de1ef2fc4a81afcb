/// \file  Declares the AdamW update of contiguous numbers in one pass over memory.
#pragma once

#include <cstdint>

namespace evenkeel::nn {

/// Points to parameters, gradients and moments, n numbers each. The four ranges must not overlap.
template <typename T>
struct AdamWSpan {
  T *parameter = nullptr, *gradient = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr;
  int64_t n = 0;
};

/// Factors that are the same for all numbers of a step.
struct AdamWFactors {
  double beta1 = 0, beta2 = 0, eps = 0;
  double decay = 1;            ///< 1 - lr weight_decay
  double lr = 0;               ///< learning rate / bias correction of the first moment
  double root_correction = 1;  ///< square root of the second moment's bias correction
  bool zero_gradient = false;  ///< true: gradients are set to zero after use
};

/// Updates m and v with the gradient, then theta = decay theta - lr m / (sqrt(v) / root_correction + eps). It computes
/// in type T. Each number is independent, so the split into spans does not change the result. The call is
/// single-threaded.
template <typename T>
void adamw(const AdamWSpan<T>& span, const AdamWFactors& factors);

}  // namespace evenkeel::nn
