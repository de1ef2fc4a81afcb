// The kernels for all other processors: the same loops with vectors of four numbers in plain C++.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/plain/error.h"
#include "nn/kernels/matmul/gemm_kernels.h"
#include "nn/kernels/matmul/isa/kernel_tables.h"
#include "nn/kernels/matmul/isa/simd_traits.h"

#define EK_TARGET

namespace evenkeel::nn::kernels {
namespace {

// Outside the namespaces of the loops: both include the loops, and argument-dependent lookup of a function that takes a
// vector would find two.
struct PortableSimd {
  static constexpr int kTermsPerStep = 1, kLanes = 4, kTileRows = 4, kUnrolledSteps = 4, kMaxStreamedRows = 1,
                       kMaxUnpackedTileRows = 4;
  static constexpr RowRange kUnpackedBf16Rows{};
  struct F {
    float x[kLanes];
  };
  struct I {
    uint32_t x[kLanes];
  };

  static EK_INLINE F zero() { return {}; }
  static EK_INLINE F broadcast(float x) { return {{x, x, x, x}}; }
  static EK_INLINE F load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static EK_INLINE void store(float* p, F v) { std::memcpy(p, v.x, sizeof(v)); }
  static EK_INLINE F load_first(const float* p, int64_t n) { return load_first_widened(p, n); }
  static EK_INLINE void store_first(float* p, F v, int64_t n) {
    for (int64_t i = 0; i < std::min<int64_t>(n, kLanes); ++i) p[i] = v.x[i];
  }
  static EK_INLINE F fma(F a, F b, F c) {
    for (int i = 0; i < kLanes; ++i) c.x[i] += a.x[i] * b.x[i];
    return c;
  }
  static EK_INLINE F add(F a, F b) {
    for (int i = 0; i < kLanes; ++i) a.x[i] += b.x[i];
    return a;
  }
  static EK_INLINE F mul(F a, F b) {
    for (int i = 0; i < kLanes; ++i) a.x[i] *= b.x[i];
    return a;
  }
  static EK_INLINE F step(F a, F b, F c) { return fma(a, b, c); }
  static EK_INLINE F as_floats(I v) { return std::bit_cast<F>(v); }
  static EK_INLINE I as_words(F v) { return std::bit_cast<I>(v); }
  static EK_INLINE I zero_words() { return {}; }

  template <typename E>
  static EK_INLINE I load_words(const E* p, int64_t n) {
    I words{};
    std::memcpy(words.x, p, static_cast<size_t>(std::min<int64_t>(n * static_cast<int64_t>(sizeof(E)), sizeof(words))));
    return words;
  }
  static EK_INLINE I load_words(const c10::Half* p, int64_t n) { return std::bit_cast<I>(load_first_widened(p, n)); }

  template <typename E, int J>
  static EK_INLINE F element(I v) {
    F out;
    for (int i = 0; i < kLanes; ++i) {
      if constexpr (std::is_same_v<E, c10::BFloat16>)
        out.x[i] = std::bit_cast<float>(J == 0 ? v.x[i] << 16 : v.x[i] & 0xffff0000u);
      else if constexpr (std::is_same_v<E, int8_t>)
        out.x[i] = static_cast<float>(static_cast<int8_t>(v.x[i] >> (8 * J)));
      else
        out.x[i] = std::bit_cast<float>(v.x[i]);
    }
    return out;
  }

  template <typename E>
  static EK_INLINE F load_widened(const E* p) {
    return load_first_widened(p, kLanes);
  }
  template <typename E>
  static EK_INLINE F load_first_widened(const E* p, int64_t n) {
    F out{};
    for (int64_t i = 0; i < std::min<int64_t>(n, kLanes); ++i) out.x[i] = static_cast<float>(p[i]);
    return out;
  }

  template <typename E>
  static EK_INLINE void load_transposed(const E* w, int64_t stride, I (&v)[kLanes]) {
    for (int r = 0; r < kLanes; ++r) v[r] = load_words(w + r * stride, 16);
    transpose(v);
  }
  static EK_INLINE void transpose(I (&v)[kLanes]) {
    for (int r = 0; r < kLanes; ++r)
      for (int c = 0; c < r; ++c) std::swap(v[r].x[c], v[c].x[r]);
  }
};

}  // namespace

namespace portable {

using Simd = PortableSimd;
static_assert(SimdTraits<Simd>);

#include "nn/kernels/matmul/loops/all.inc"

}  // namespace portable

namespace portable_pairs {

using Singles = PortableSimd;
#include "nn/kernels/matmul/isa/emulated_pairs.inc"
static_assert(PairSimdTraits<Simd>);

#include "nn/kernels/matmul/loops/all.inc"

}  // namespace portable_pairs

const GemmKernels& gemm_kernels_portable() { return portable::kTable; }
const GemmKernels& gemm_kernels_portable_pairs() { return portable_pairs::kTable; }

}  // namespace evenkeel::nn::kernels
#undef EK_TARGET
