// The kernels for AVX2. There are 16 vector registers, so a tile has 6 rows by 16 columns: 12 registers of sums, two of
// the weight, one of x.
#if defined(__x86_64__)
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/plain/error.h"
#include "nn/kernels/matmul/gemm_kernels.h"
#include "nn/kernels/matmul/isa/kernel_tables.h"
#include "nn/kernels/matmul/isa/simd_traits.h"

#define EK_TARGET __attribute__((target("avx2,fma")))

namespace evenkeel::nn::kernels {
namespace avx2 {

struct Simd {
  using F = __m256;
  using I = __m256i;
  static constexpr int kTermsPerStep = 1, kLanes = 8, kTileRows = 6, kUnrolledSteps = 2, kMaxStreamedRows = 8,
                       kMaxUnpackedTileRows = 4;
  static constexpr RowRange kUnpackedBf16Rows{6, 64};

  static EK_TARGET EK_INLINE F zero() { return _mm256_setzero_ps(); }
  static EK_TARGET EK_INLINE F broadcast(float x) { return _mm256_set1_ps(x); }
  static EK_TARGET EK_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
  static EK_TARGET EK_INLINE void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static EK_TARGET EK_INLINE F load_first(const float* p, int64_t n) { return _mm256_maskload_ps(p, low8(n)); }
  static EK_TARGET EK_INLINE void store_first(float* p, F v, int64_t n) { _mm256_maskstore_ps(p, low8(n), v); }
  static EK_TARGET EK_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static EK_TARGET EK_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  static EK_TARGET EK_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static EK_TARGET EK_INLINE F step(F a, F b, F c) { return fma(a, b, c); }
  static EK_TARGET EK_INLINE F as_floats(I v) { return _mm256_castsi256_ps(v); }
  static EK_TARGET EK_INLINE I as_words(F v) { return _mm256_castps_si256(v); }
  static EK_TARGET EK_INLINE I zero_words() { return _mm256_setzero_si256(); }

  // Loads up to 32 bytes unchanged. float16 is converted to float32.
  template <typename E>
  static EK_TARGET EK_INLINE I load_words(const E* p, int64_t n) {
    alignas(32) char bytes[32] = {};
    std::memcpy(bytes, p, static_cast<size_t>(std::min<int64_t>(n * static_cast<int64_t>(sizeof(E)), 32)));
    return _mm256_load_si256(as<I>(bytes));
  }
  static EK_TARGET EK_INLINE I load_words(const c10::Half* p, int64_t n) {
    return _mm256_castps_si256(load_first_widened(p, n));
  }

  template <typename E, int J>
  static EK_TARGET EK_INLINE F element(I v) {
    if constexpr (std::is_same_v<E, c10::BFloat16>)
      return as_floats(J == 0 ? _mm256_slli_epi32(v, 16) : _mm256_and_si256(v, _mm256_set1_epi32(-65536)));
    else if constexpr (std::is_same_v<E, int8_t>)
      return _mm256_cvtepi32_ps(_mm256_srai_epi32(J == 3 ? v : _mm256_slli_epi32(v, 24 - 8 * J), 24));
    else
      return as_floats(v);
  }

  static EK_TARGET EK_INLINE F load_widened(const float* p) { return load(p); }
  static EK_TARGET EK_INLINE F load_widened(const c10::BFloat16* p) {
    return as_floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(as<__m128i>(p))), 16));
  }
  static EK_TARGET EK_INLINE F load_widened(const c10::Half* p) { return load_first_widened(p, kLanes); }
  static EK_TARGET EK_INLINE F load_widened(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(as<__m128i>(p))));
  }
  template <typename E>
  static EK_TARGET EK_INLINE F load_first_widened(const E* p, int64_t n) {
    alignas(32) float numbers[kLanes] = {};
    for (int64_t i = 0; i < std::min<int64_t>(n, kLanes); ++i) numbers[i] = static_cast<float>(p[i]);
    return _mm256_load_ps(numbers);
  }

  template <typename E>
  static EK_TARGET EK_INLINE void load_transposed(const E* w, int64_t stride, I (&v)[kLanes]) {
#pragma GCC unroll 8
    for (int r = 0; r < kLanes; ++r) {
      if constexpr (std::is_same_v<E, c10::Half>)
        v[r] = load_words(w + r * stride, kLanes);
      else
        v[r] = _mm256_loadu_si256(as<I>(w + r * stride));
    }
    transpose(v);
  }

  static EK_TARGET EK_INLINE void transpose(I (&v)[kLanes]) {
    transpose_halves(v);
    transpose_halves(v + 4);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const I low = v[c], high = v[4 + c];
      v[c] = _mm256_permute2x128_si256(low, high, 0x20);
      v[4 + c] = _mm256_permute2x128_si256(low, high, 0x31);
    }
  }

 private:
  template <typename To>
  static const To* as(const void* p) {
    return static_cast<const To*>(p);
  }
  static EK_TARGET EK_INLINE I low8(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(std::min<int64_t>(n, kLanes))),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  // Transposes 4 x 4 words in each 128 bits: word c of v[i] becomes word i of v[c].
  static EK_TARGET EK_INLINE void transpose_halves(I* v) {
    const I a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    const I c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm256_unpacklo_epi64(a, c);
    v[1] = _mm256_unpackhi_epi64(a, c);
    v[2] = _mm256_unpacklo_epi64(b, d);
    v[3] = _mm256_unpackhi_epi64(b, d);
  }
};
static_assert(SimdTraits<Simd>);

#include "nn/kernels/matmul/loops/all.inc"

}  // namespace avx2

namespace avx2_pairs {

using Singles = avx2::Simd;
#include "nn/kernels/matmul/isa/emulated_pairs.inc"
static_assert(PairSimdTraits<Simd>);

#include "nn/kernels/matmul/loops/all.inc"

}  // namespace avx2_pairs

const GemmKernels& gemm_kernels_avx2() { return avx2::kTable; }
const GemmKernels& gemm_kernels_avx2_pairs() { return avx2_pairs::kTable; }

}  // namespace evenkeel::nn::kernels
#undef EK_TARGET
#endif
