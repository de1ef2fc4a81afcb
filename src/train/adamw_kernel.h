/// \file  AdamW over contiguous numbers, whatever an optimiser's step does to them in one pass.
#pragma once

#include <cstdint>

namespace evenkeel::kernels {

/// Parameters with their gradients and moments, [n] each. None may overlap.
template <typename T>
struct AdamWSpan {
  T *parameter = nullptr, *gradient = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr;
  int64_t n = 0;
};

/// What a step of AdamW multiplies with.
struct AdamWFactors {
  double beta1 = 0, beta2 = 0, eps = 0;
  double decay = 1;            ///< 1 - lr weight_decay
  double lr = 0;               ///< over the first moment's bias correction
  double root_correction = 1;  ///< square root of the second moment's bias correction
  bool zero_gradient = false;  ///< afterwards
};

/// theta = decay theta - lr m / (sqrt(v) / root_correction + eps), after m and v took the gradient. In T's arithmetic;
/// every number on its own, so neither threads nor where a span begins change a bit. Single-threaded.
template <typename T>
void adamw(const AdamWSpan<T>& span, const AdamWFactors& factors);

}  // namespace evenkeel::kernels
