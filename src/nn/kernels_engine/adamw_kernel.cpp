#include "nn/kernels_engine/adamw_kernel.h"

#include <cmath>

#include "base/system/dispatch.h"

namespace evenkeel::nn {
namespace {

template <typename T>
struct AdamWLoop {
  static EK_INLINE void run(T* __restrict parameter, T* __restrict gradient, T* __restrict exp_avg,
                            T* __restrict exp_avg_sq, int64_t n, const AdamWFactors& factors) {
    const T beta1 = static_cast<T>(factors.beta1), beta2 = static_cast<T>(factors.beta2);
    const T rest1 = static_cast<T>(1 - factors.beta1), rest2 = static_cast<T>(1 - factors.beta2);
    const T decay = static_cast<T>(factors.decay), lr = static_cast<T>(factors.lr);
    const T root = static_cast<T>(1 / factors.root_correction), eps = static_cast<T>(factors.eps);
    for (int64_t i = 0; i < n; ++i) {
      const T g = gradient[i];
      const T m = beta1 * exp_avg[i] + rest1 * g;
      const T v = beta2 * exp_avg_sq[i] + rest2 * g * g;
      exp_avg[i] = m;
      exp_avg_sq[i] = v;
      parameter[i] = decay * parameter[i] - lr * m / (std::sqrt(v) * root + eps);
    }
    if (!factors.zero_gradient) return;
    for (int64_t i = 0; i < n; ++i) gradient[i] = 0;
  }
};

}  // namespace

template <typename T>
void adamw(const AdamWSpan<T>& span, const AdamWFactors& factors) {
  // Small enough that the gradient is zeroed while it is in the first-level cache.
  constexpr int64_t kBlock = 1024;
  for (int64_t i = 0; i < span.n; i += kBlock)
    vectorised<AdamWLoop<T>>(span.parameter + i, span.gradient + i, span.exp_avg + i, span.exp_avg_sq + i,
                             span.n - i < kBlock ? span.n - i : kBlock, factors);
}
template void adamw<float>(const AdamWSpan<float>&, const AdamWFactors&);
template void adamw<double>(const AdamWSpan<double>&, const AdamWFactors&);

}  // namespace evenkeel::nn
