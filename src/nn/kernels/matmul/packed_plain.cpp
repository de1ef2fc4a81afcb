// For processors of other kinds: the same loops over four numbers, in plain C++.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/plain/error.h"
#include "nn/kernels/matmul/packed_kernels.h"
#include "nn/kernels/matmul/packed_matmul.h"

#define EK_TARGET

namespace evenkeel::kernels {
namespace {

// In no namespace of loops: a function of theirs that takes one of its vectors would be found beside another's.
struct PlainSimd {
  static constexpr int kTerms = 1, kLanes = 4, kTileRows = 4, kUnrolledSteps = 4, kStreamedRows = 1, kLyingRows = 4;
  static constexpr RowRange kLyingBfloat16{};
  struct F {
    float x[kLanes];
  };
  struct I {
    uint32_t x[kLanes];
  };

  static EK_INLINE F zero() { return {}; }
  static EK_INLINE F set(float x) { return {{x, x, x, x}}; }
  static EK_INLINE F load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static EK_INLINE void store(float* p, F v) { std::memcpy(p, v.x, sizeof(v)); }
  static EK_INLINE F load_first(const float* p, int64_t n) { return first_widened(p, n); }
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
  static EK_INLINE I first_words(const E* p, int64_t n) {
    I words{};
    std::memcpy(words.x, p, static_cast<size_t>(std::min<int64_t>(n * static_cast<int64_t>(sizeof(E)), sizeof(words))));
    return words;
  }
  static EK_INLINE I first_words(const c10::Half* p, int64_t n) { return std::bit_cast<I>(first_widened(p, n)); }

  // Number J of each word, the first in its low bits.
  template <typename E, int J>
  static EK_INLINE F number(I v) {
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
  static EK_INLINE F widened(const E* p) {
    return first_widened(p, kLanes);
  }
  template <typename E>
  static EK_INLINE F first_widened(const E* p, int64_t n) {
    F out{};
    for (int64_t i = 0; i < std::min<int64_t>(n, kLanes); ++i) out.x[i] = static_cast<float>(p[i]);
    return out;
  }

  template <typename E>
  static EK_INLINE void load_transposed(const E* w, int64_t stride, I (&v)[kLanes]) {
    for (int r = 0; r < kLanes; ++r) v[r] = first_words(w + r * stride, 16);
    transpose(v);
  }
  static EK_INLINE void transpose(I (&v)[kLanes]) {
    for (int r = 0; r < kLanes; ++r)
      for (int c = 0; c < r; ++c) std::swap(v[r].x[c], v[c].x[r]);
  }
};

}  // namespace

namespace plain {

using Simd = PlainSimd;
#include "nn/kernels/matmul/packed_loops.inc"

}  // namespace plain

namespace plain_pairs {

using Singles = PlainSimd;
#include "nn/kernels/matmul/packed_pairs.inc"

#include "nn/kernels/matmul/packed_loops.inc"

}  // namespace plain_pairs

#if defined(__x86_64__)
const PackedKernels& packed_kernels_avx512();
const PackedKernels& packed_kernels_avx512_pairs();
const PackedKernels& packed_kernels_avx2();
const PackedKernels& packed_kernels_avx2_pairs();
#endif

const PackedKernels& packed_kernels_tiles(Isa isa);

const PackedKernels& packed_kernels([[maybe_unused]] Isa isa, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kTiles) return packed_kernels_tiles(isa);
  const bool pairs = arithmetic == Arithmetic::kPairs;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 && pairs && has_bfloat16_dots()) return packed_kernels_avx512_pairs();
  if (isa == Isa::kAvx512 && !pairs) return packed_kernels_avx512();
  if (isa != Isa::kBaseline) return pairs ? packed_kernels_avx2_pairs() : packed_kernels_avx2();
#endif
  return pairs ? plain_pairs::kTable : plain::kTable;
}

}  // namespace evenkeel::kernels
#undef EK_TARGET
