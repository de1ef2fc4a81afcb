#include "nn/kernels/primitives/vector.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/plain/error.h"
#include "base/system/dispatch.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int kLanes = 16;

template <typename T>
EK_INLINE T lane_sum(const T* lanes) {
  T total = 0;
  for (int j = 0; j < kLanes; ++j) total += lanes[j];
  return total;
}

EK_INLINE double exponential(double x) { return std::exp(x); }

// Computes exp(x) by range reduction to [-ln2/2, ln2/2] and a degree-6 polynomial: relative error below 2e-7, no
// branches.
EK_INLINE float exponential(float x) {
  constexpr float kRound = 12582912.0f;
  const float low = x < -87.0f ? -87.0f : x;
  const float clamped = low > 88.0f ? 88.0f : low;
  const float shifted = clamped * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return x < -87.0f ? 0.0f : p * std::bit_cast<float>((exponent + 127) << 23);
}

template <typename T>
EK_INLINE T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

template <typename From, typename To>
struct Convert {
  static EK_INLINE void run(const From* src, To* dst, int64_t n) {
    for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<To>(static_cast<float>(src[i]));
  }
};
template <typename To>
struct Convert<double, To> {
  static EK_INLINE void run(const double* src, To* dst, int64_t n) {
    for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<To>(src[i]);
  }
};
template <typename To>
struct Convert<c10::BFloat16, To> {
  static EK_INLINE void run(const c10::BFloat16* src, To* dst, int64_t n) {
    const auto* bits = reinterpret_cast<const uint16_t*>(src);
    for (int64_t i = 0; i < n; ++i) dst[i] = std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
  }
};

struct AddWidened {
  template <typename To>
  static EK_INLINE void run(const c10::BFloat16* src, To* __restrict dst, int64_t n) {
    const auto* bits = reinterpret_cast<const uint16_t*>(src);
    for (int64_t i = 0; i < n; ++i) dst[i] += std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
  }
};

struct Narrow {
  template <typename From>
  static EK_INLINE void run(const From* __restrict src, c10::BFloat16* dst, int64_t n) {
    auto* bits = reinterpret_cast<uint16_t*>(dst);
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<float>(src[i]);
      const auto word = std::bit_cast<uint32_t>(value);
      const uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
      bits[i] = static_cast<uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
    }
  }
};

template <typename T>
struct Swiglu {
  static EK_INLINE void run(const T* __restrict g, const T* __restrict u, T* __restrict h, int64_t n) {
    for (int64_t i = 0; i < n; ++i) h[i] = g[i] * sigmoid(g[i]) * u[i];
  }
};

template <typename T>
struct SwigluBackward {
  static EK_INLINE void one(const T* dh, const T* g, const T* u, T weight, T* h, T* dg, T* du, T* sum) {
    const T s = sigmoid(*g), silu = *g * s, slope = s + silu * (T(1) - s);
    *h = silu * *u;
    *sum += *h * *dh;
    const T scaled = weight * *dh;
    *du = scaled * silu;
    *dg = scaled * *u * slope;
  }
  static EK_INLINE T run(const T* dh, const T* g, const T* u, T weight, T* h, T* dg, T* du, int64_t n) {
    T lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
      for (int j = 0; j < kLanes; ++j)
        one(dh + i + j, g + i + j, u + i + j, weight, h + i + j, dg + i + j, du + i + j, lanes + j);
    }
    for (int j = 0; i < n; ++i, ++j) one(dh + i, g + i, u + i, weight, h + i, dg + i, du + i, lanes + j);
    return lane_sum(lanes);
  }
};

template <typename T>
struct Dot {
  static EK_INLINE T run(const T* __restrict a, const T* __restrict b, int64_t n) {
    T lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; ++i, ++j) lanes[j] += a[i] * b[i];
    return lane_sum(lanes);
  }
};

template <typename T>
struct SumOfSquares {
  static EK_INLINE double run(const T* __restrict x, int64_t n) {
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
    for (int j = 0; i < n; ++i, ++j) lanes[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return lane_sum(lanes);
  }
};

template <typename T>
struct AddClamped {
  static EK_INLINE double one(T alpha, T scale, T bound, T x, T* y) {
    const T scaled = scale * x, low = scaled < -bound ? -bound : scaled, clamped = low > bound ? bound : low;
    *y += alpha * clamped;
    return static_cast<double>(clamped) * static_cast<double>(clamped);
  }
  static EK_INLINE double run(T alpha, T scale, T bound, const T* __restrict x, T* __restrict y, int64_t n) {
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] += one(alpha, scale, bound, x[i + j], y + i + j);
    for (int j = 0; i < n; ++i, ++j) lanes[j] += one(alpha, scale, bound, x[i], y + i);
    return lane_sum(lanes);
  }
};

template <typename T>
struct Axpy {
  static EK_INLINE void run(T alpha, const T* __restrict x, T* __restrict y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
  }
};

constexpr int64_t kRowsAtOnce = 4;  // enough independent sums to hide the latency of an addition

/// A vector of kLanes numbers in memory. The compiler keeps this type in registers, but not an array of lanes.
template <typename T>
struct LanesOf {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T)), aligned(sizeof(T)), may_alias));
};
template <typename T>
using Lanes = typename LanesOf<T>::Type;

template <typename T>
struct Dots {
  static EK_INLINE void run(const T* x, const T* rows, int64_t count, int64_t n, T* out) {
    int64_t row = 0;
    for (; row + kRowsAtOnce <= count; row += kRowsAtOnce) four(x, rows + row * n, n, out + row);
    for (; row < count; ++row) out[row] = Dot<T>::run(x, rows + row * n, n);
  }

 private:
  static EK_INLINE void four(const T* x, const T* rows, int64_t n, T* out) {
    using Block = const Lanes<T>*;
    Lanes<T> s0 = {}, s1 = {}, s2 = {}, s3 = {};
    const int64_t whole = n - n % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Lanes<T> own = *reinterpret_cast<Block>(x + i);
      s0 += own * *reinterpret_cast<Block>(rows + i);
      s1 += own * *reinterpret_cast<Block>(rows + n + i);
      s2 += own * *reinterpret_cast<Block>(rows + 2 * n + i);
      s3 += own * *reinterpret_cast<Block>(rows + 3 * n + i);
    }
    const Lanes<T>* sums[kRowsAtOnce] = {&s0, &s1, &s2, &s3};
    for (int64_t row = 0; row < kRowsAtOnce; ++row) {
      T lanes[kLanes];
      std::memcpy(lanes, sums[row], sizeof(lanes));
      for (int64_t i = whole; i < n; ++i) lanes[i - whole] += x[i] * rows[row * n + i];
      out[row] = lane_sum(lanes);
    }
  }
};

template <typename T>
struct AddRows {
  static EK_INLINE void run(const T* alphas, const T* rows, int64_t count, int64_t n, T* __restrict y) {
    int64_t row = 0;
    for (; row + kRowsAtOnce <= count; row += kRowsAtOnce) four(alphas + row, rows + row * n, n, y);
    for (; row < count; ++row) Axpy<T>::run(alphas[row], rows + row * n, y, n);
  }

 private:
  static EK_INLINE void four(const T* alphas, const T* rows, int64_t n, T* __restrict y) {
    const T a0 = alphas[0], a1 = alphas[1], a2 = alphas[2], a3 = alphas[3];
    for (int64_t i = 0; i < n; ++i) {
      T sum = y[i];
      sum += a0 * rows[i];
      sum += a1 * rows[n + i];
      sum += a2 * rows[2 * n + i];
      sum += a3 * rows[3 * n + i];
      y[i] = sum;
    }
  }
};

template <typename T>
struct ScaledCopy {
  static EK_INLINE void run(T alpha, const T* x, T* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = alpha * x[i];
  }
};

template <typename T>
struct ScaledProduct {
  static EK_INLINE void run(T alpha, const T* __restrict a, const T* __restrict b, T* __restrict y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = alpha * a[i] * b[i];
  }
};

template <typename T>
struct ExpShifted {
  static EK_INLINE T run(T* __restrict x, T shift, int64_t n) {
    T lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) {
        x[i + j] = exponential(x[i + j] - shift);
        lanes[j] += x[i + j];
      }
    for (int j = 0; i < n; ++i, ++j) {
      x[i] = exponential(x[i] - shift);
      lanes[j] += x[i];
    }
    return lane_sum(lanes);
  }
};

template <typename T>
struct MaxOf {
  static EK_INLINE T run(const T* __restrict x, int64_t n) {
    T lanes[kLanes];
    for (int j = 0; j < kLanes; ++j) lanes[j] = x[0];
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    T best = lanes[0];
    for (int j = 1; j < kLanes; ++j) best = lanes[j] > best ? lanes[j] : best;
    return best;
  }
};

template <typename T>
struct Rotate {
  static EK_INLINE void run(const T* x, const float* __restrict cos, const float* __restrict sin, T sign, T* out,
                            int64_t width) {
    const int64_t half = width / 2;
#pragma GCC ivdep
    for (int64_t j = 0; j < half; ++j) {
      const T first = x[j], second = x[j + half], c = cos[j], s = sign * T(sin[j]);
      out[j] = first * c - second * s;
      out[j + half] = second * c + first * s;
    }
  }
};

}  // namespace

template <typename T>
void widen(const void* src, c10::ScalarType dtype, T* dst, int64_t n) {
  switch (dtype) {
    case c10::kBFloat16:
      return vectorised<Convert<c10::BFloat16, T>>(static_cast<const c10::BFloat16*>(src), dst, n);
    case c10::kHalf:
      return vectorised<Convert<c10::Half, T>>(static_cast<const c10::Half*>(src), dst, n);
    case c10::kFloat:
      return vectorised<Convert<float, T>>(static_cast<const float*>(src), dst, n);
    case c10::kDouble:
      return vectorised<Convert<double, T>>(static_cast<const double*>(src), dst, n);
    default:
      fail(kInternal, "widen: a weight is stored as ", c10::toString(dtype), ", allowed: a floating type");
  }
}

template <typename T>
void narrow(const T* src, c10::BFloat16* dst, int64_t n) {
  vectorised<Narrow>(src, dst, n);
}
template <typename T>
void add_widened(const c10::BFloat16* src, T* dst, int64_t n) {
  vectorised<AddWidened>(src, dst, n);
}
template <typename T>
void swiglu(const T* g, const T* u, T* h, int64_t n) {
  vectorised<Swiglu<T>>(g, u, h, n);
}
template <typename T>
T swiglu_backward(const T* dh, const T* g, const T* u, T weight, T* h, T* dg, T* du, int64_t n) {
  return vectorised<SwigluBackward<T>>(dh, g, u, weight, h, dg, du, n);
}
template <typename T>
T dot(const T* a, const T* b, int64_t n) {
  return vectorised<Dot<T>>(a, b, n);
}
template <typename T>
double sum_of_squares(const T* x, int64_t n) {
  return vectorised<SumOfSquares<T>>(x, n);
}

template <typename T>
double add_clamped(T alpha, T scale, T bound, const T* x, T* y, int64_t n) {
  return vectorised<AddClamped<T>>(alpha, scale, bound, x, y, n);
}

template <typename T>
void axpy(T alpha, const T* x, T* y, int64_t n) {
  vectorised<Axpy<T>>(alpha, x, y, n);
}
template <typename T>
void dots(const T* x, const T* rows, int64_t count, int64_t n, T* out) {
  vectorised<Dots<T>>(x, rows, count, n, out);
}
template <typename T>
void add_rows(const T* alphas, const T* rows, int64_t count, int64_t n, T* y) {
  vectorised<AddRows<T>>(alphas, rows, count, n, y);
}
template <typename T>
void scaled_copy(T alpha, const T* x, T* y, int64_t n) {
  vectorised<ScaledCopy<T>>(alpha, x, y, n);
}
template <typename T>
void scaled_product(T alpha, const T* a, const T* b, T* y, int64_t n) {
  vectorised<ScaledProduct<T>>(alpha, a, b, y, n);
}
template <typename T>
T exp_shifted(T* x, T shift, int64_t n) {
  return vectorised<ExpShifted<T>>(x, shift, n);
}
template <typename T>
T max_of(const T* x, int64_t n) {
  return vectorised<MaxOf<T>>(x, n);
}
template <typename T>
void rotate(const T* x, const float* cos, const float* sin, T sign, T* out, int64_t width) {
  vectorised<Rotate<T>>(x, cos, sin, sign, out, width);
}

#define EK_INSTANTIATE(T)                                                              \
  template void widen<T>(const void*, c10::ScalarType, T*, int64_t);                   \
  template void narrow<T>(const T*, c10::BFloat16*, int64_t);                          \
  template void add_widened<T>(const c10::BFloat16*, T*, int64_t);                     \
  template void swiglu<T>(const T*, const T*, T*, int64_t);                            \
  template T swiglu_backward<T>(const T*, const T*, const T*, T, T*, T*, T*, int64_t); \
  template T dot<T>(const T*, const T*, int64_t);                                      \
  template double sum_of_squares<T>(const T*, int64_t);                                \
  template double add_clamped<T>(T, T, T, const T*, T*, int64_t);                      \
  template void axpy<T>(T, const T*, T*, int64_t);                                     \
  template void dots<T>(const T*, const T*, int64_t, int64_t, T*);                     \
  template void add_rows<T>(const T*, const T*, int64_t, int64_t, T*);                 \
  template void scaled_copy<T>(T, const T*, T*, int64_t);                              \
  template void scaled_product<T>(T, const T*, const T*, T*, int64_t);                 \
  template T exp_shifted<T>(T*, T, int64_t);                                           \
  template T max_of<T>(const T*, int64_t);                                             \
  template void rotate<T>(const T*, const float*, const float*, T, T*, int64_t);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::nn::kernels
