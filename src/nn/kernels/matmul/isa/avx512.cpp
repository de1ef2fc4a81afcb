// The kernels for AVX-512. There are 32 vector registers, so a tile has 14 rows by 32 columns: 28 registers of sums,
// two of the weight, one of x.
#if defined(__x86_64__)
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <immintrin.h>

#include <array>
#include <utility>

#include "base/plain/error.h"
#include "nn/kernels/matmul/gemm_kernels.h"
#include "nn/kernels/matmul/isa/kernel_tables.h"
#include "nn/kernels/matmul/isa/simd_traits.h"

#if defined(__GNUC__) && \
    !defined(__clang__)  // g++ 12 warns of undefined operands inside the intrinsics (GCC bug 105593)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define EK_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))

namespace evenkeel::nn::kernels {
namespace avx512 {

struct Simd {
  using F = __m512;
  using I = __m512i;
  static constexpr int kTermsPerStep = 1, kLanes = 16, kTileRows = 14, kUnrolledSteps = 4, kMaxStreamedRows = 8,
                       kMaxUnpackedTileRows = 8;
  static constexpr RowRange kUnpackedBf16Rows{};

  static EK_TARGET EK_INLINE F zero() { return _mm512_setzero_ps(); }
  static EK_TARGET EK_INLINE F broadcast(float x) { return _mm512_set1_ps(x); }
  static EK_TARGET EK_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static EK_TARGET EK_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static EK_TARGET EK_INLINE F load_first(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(low16(n), p); }
  static EK_TARGET EK_INLINE void store_first(float* p, F v, int64_t n) { _mm512_mask_storeu_ps(p, low16(n), v); }
  static EK_TARGET EK_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static EK_TARGET EK_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static EK_TARGET EK_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static EK_TARGET EK_INLINE F step(F a, F b, F c) { return fma(a, b, c); }
  // Processors with 256-bit execution units need half the time for a half vector.
  static EK_TARGET EK_INLINE F step_low_half(F a, F b, F c) {
    return _mm512_castps256_ps512(
        _mm256_fmadd_ps(_mm512_castps512_ps256(a), _mm512_castps512_ps256(b), _mm512_castps512_ps256(c)));
  }
  // Vectors of half the length, for panels of at most 8 columns.
  struct Half {
    using F = __m256;
    static constexpr int kLanes = 8;
    static EK_TARGET EK_INLINE F zero() { return _mm256_setzero_ps(); }
    static EK_TARGET EK_INLINE F broadcast(float x) { return _mm256_set1_ps(x); }
    static EK_TARGET EK_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
    static EK_TARGET EK_INLINE void store(float* p, F v) { _mm256_storeu_ps(p, v); }
    static EK_TARGET EK_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
    static EK_TARGET EK_INLINE F step(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  };
  static EK_TARGET EK_INLINE F broadcast_quarter(const float* p) {
    return _mm512_castps256_ps512(_mm256_broadcast_ps(as<__m128>(p)));
  }
  static EK_TARGET EK_INLINE F join_quarters(F a, F b) {
    return _mm512_castps256_ps512(_mm256_mask_blend_ps(0xf0, _mm512_castps512_ps256(a), _mm512_castps512_ps256(b)));
  }
  static EK_TARGET EK_INLINE void store_quarters(float* first, float* second, F v, bool add) {
    const __m128 a = _mm512_castps512_ps128(v), b = _mm512_extractf32x4_ps(v, 1);
    _mm_storeu_ps(first, add ? _mm_add_ps(_mm_loadu_ps(first), a) : a);
    _mm_storeu_ps(second, add ? _mm_add_ps(_mm_loadu_ps(second), b) : b);
  }
  static EK_TARGET EK_INLINE F as_floats(I v) { return _mm512_castsi512_ps(v); }
  static EK_TARGET EK_INLINE I as_words(F v) { return _mm512_castps_si512(v); }
  static EK_TARGET EK_INLINE I zero_words() { return _mm512_setzero_si512(); }

  // Loads up to 64 bytes unchanged. float16 is converted to float32.
  template <typename E>
  static EK_TARGET EK_INLINE I load_words(const E* p, int64_t n) {
    const auto bytes = n * static_cast<int64_t>(sizeof(E));
    return _mm512_maskz_loadu_epi8(bytes >= 64 ? ~__mmask64{0} : (__mmask64{1} << bytes) - 1, p);
  }
  static EK_TARGET EK_INLINE I load_words(const c10::Half* p, int64_t n) {
    return _mm512_castps_si512(load_first_widened(p, n));
  }

  template <typename E, int J>
  static EK_TARGET EK_INLINE F element(I v) {
    if constexpr (std::is_same_v<E, c10::BFloat16>)
      return as_floats(J == 0 ? _mm512_slli_epi32(v, 16) : _mm512_and_si512(v, _mm512_set1_epi32(-65536)));
    else if constexpr (std::is_same_v<E, int8_t>)
      return _mm512_cvtepi32_ps(_mm512_srai_epi32(J == 3 ? v : _mm512_slli_epi32(v, 24 - 8 * J), 24));
    else
      return as_floats(v);
  }

  static EK_TARGET EK_INLINE F load_widened(const float* p) { return load(p); }
  static EK_TARGET EK_INLINE F load_widened(const c10::BFloat16* p) {
    return from_bfloat16(_mm256_loadu_si256(as<__m256i>(p)));
  }
  static EK_TARGET EK_INLINE F load_widened(const c10::Half* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(as<__m256i>(p)));
  }
  static EK_TARGET EK_INLINE F load_widened(const int8_t* p) { return from_int8(_mm_loadu_si128(as<__m128i>(p))); }
  static EK_TARGET EK_INLINE F load_first_widened(const float* p, int64_t n) { return load_first(p, n); }
  static EK_TARGET EK_INLINE F load_first_widened(const c10::BFloat16* p, int64_t n) {
    return from_bfloat16(_mm256_maskz_loadu_epi16(low16(n), p));
  }
  static EK_TARGET EK_INLINE F load_first_widened(const c10::Half* p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(low16(n), p));
  }
  static EK_TARGET EK_INLINE F load_first_widened(const int8_t* p, int64_t n) {
    return from_int8(_mm_maskz_loadu_epi8(low16(n), p));
  }

  // Quarters of four rows are loaded into one vector, which needs no shuffle. Then 4 x 4 words are transposed in each
  // quarter. A cache line is used completely before the next one: 16 rows that are 4 KiB apart do not fit into one set
  // of the first-level cache.
  template <typename E>
  static EK_TARGET EK_INLINE void load_transposed(const E* w, int64_t stride, I (&v)[kLanes]) {
    if constexpr (std::is_same_v<E, c10::Half>) {
      for (int r = 0; r < kLanes; ++r) v[r] = load_words(w + r * stride, kLanes);
      transpose(v);
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int q = 0; q < 4; ++q) v[4 * q + i] = quarters(w + i * stride + q * 16 / sizeof(E), 4 * stride);
      }
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) transpose_quarters(v + 4 * q);
    }
  }

  static EK_TARGET EK_INLINE void transpose(I (&v)[kLanes]) {
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i += 4) transpose_quarters(v + i);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const I a = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88), b = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
      const I d = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88), e = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
      v[c] = _mm512_shuffle_i32x4(a, d, 0x88);
      v[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
      v[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
      v[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
    }
  }

 private:
  template <typename To>
  static const To* as(const void* p) {
    return static_cast<const To*>(p);
  }
  static EK_INLINE __mmask16 low16(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffff : (1 << n) - 1); }
  static EK_TARGET EK_INLINE __m128i quarter(const void* p) { return _mm_loadu_si128(as<__m128i>(p)); }
  template <typename E>
  static EK_TARGET EK_INLINE I quarters(const E* p, int64_t stride) {
    I v = _mm512_castsi128_si512(quarter(p));
    v = _mm512_inserti32x4(v, quarter(p + stride), 1);
    v = _mm512_inserti32x4(v, quarter(p + 2 * stride), 2);
    return _mm512_inserti32x4(v, quarter(p + 3 * stride), 3);
  }
  static EK_TARGET EK_INLINE F from_bfloat16(__m256i v) {
    return as_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  static EK_TARGET EK_INLINE F from_int8(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }
  // Transposes 4 x 4 words in each 128 bits: word c of v[i] becomes word i of v[c].
  static EK_TARGET EK_INLINE void transpose_quarters(I* v) {
    const I a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const I c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(a, c);
    v[1] = _mm512_unpackhi_epi64(a, c);
    v[2] = _mm512_unpacklo_epi64(b, d);
    v[3] = _mm512_unpackhi_epi64(b, d);
  }
};
static_assert(SimdTraits<Simd>);

#include "nn/kernels/matmul/loops/all.inc"

}  // namespace avx512

#undef EK_TARGET
#define EK_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")))

namespace avx512_pairs {

struct Simd : avx512::Simd {
  static constexpr int kTermsPerStep = 2;
  static constexpr RowRange kUnpackedBf16Rows{3, 128};
  static EK_TARGET EK_INLINE F step(F a, F b, F sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static EK_TARGET EK_INLINE F step_low_half(F a, F b, F sum) {
    return _mm512_castps256_ps512(_mm256_dpbf16_ps(_mm512_castps512_ps256(sum),
                                                   reinterpret_cast<__m256bh>(_mm512_castps512_ps256(a)),
                                                   reinterpret_cast<__m256bh>(_mm512_castps512_ps256(b))));
  }
  struct Half : avx512::Simd::Half {
    static EK_TARGET EK_INLINE F step(F a, F b, F sum) {
      return _mm256_dpbf16_ps(sum, reinterpret_cast<__m256bh>(a), reinterpret_cast<__m256bh>(b));
    }
  };
  static EK_TARGET EK_INLINE F make_pair(F low, F high) {
    return as_floats(_mm512_or_si512(_mm512_srli_epi32(as_words(low), 16), as_words(high)));
  }
  // The elements of the two rows alternate.
  static EK_TARGET EK_INLINE void load_interleaved(const c10::BFloat16* rows, int64_t stride, F (&columns)[2]) {
    const I low = _mm512_loadu_si512(rows), high = _mm512_loadu_si512(rows + stride);
    const I lanes = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                     36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    columns[0] = as_floats(_mm512_permutex2var_epi16(low, lanes, high));
    const I later = _mm512_add_epi16(lanes, _mm512_set1_epi16(16));
    columns[1] = as_floats(_mm512_permutex2var_epi16(low, later, high));
  }
  static EK_TARGET EK_INLINE I narrow_pair(F first, F second) {
    return reinterpret_cast<I>(_mm512_cvtne2ps_pbh(second, first));
  }
};
static_assert(PairSimdTraits<Simd>);

#include "nn/kernels/matmul/loops/all.inc"

}  // namespace avx512_pairs

const GemmKernels& gemm_kernels_avx512() { return avx512::kTable; }
const GemmKernels& gemm_kernels_avx512_pairs() { return avx512_pairs::kTable; }

}  // namespace evenkeel::nn::kernels
#undef EK_TARGET
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif
