#include "lora/sum_in_registers.h"

#include <algorithm>
#include <array>

#include "base/dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)  // g++ 12 takes the intrinsics' own undefined operands for ours (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace evenkeel {

#if defined(__x86_64__)

#define EK_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

namespace {

constexpr int kAhead = 2048;    // bytes
constexpr size_t kLine = 64;    // bytes
constexpr size_t kFloats = 16;  // of a line

/// Four registers of eight sums.
struct Sums {
  __m512i eight[4];
};

EK_AVX512 inline __m512i rounded(__m256 x, __m512d factor) {
  return _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtps_pd(x), factor));
}

EK_AVX512 inline void add_half(__m256i bfloat16, __m512d factor, __m512i& low, __m512i& high) {
  const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bfloat16), 16);
  const auto upper = _mm512_extracti64x4_epi64(wide, 1);
  low = _mm512_add_epi64(low, rounded(_mm256_castsi256_ps(_mm512_castsi512_si256(wide)), factor));
  high = _mm512_add_epi64(high, rounded(_mm256_castsi256_ps(upper), factor));
}

EK_AVX512 inline void add(__m512i bfloat16, double factor, Sums& sums) {
  const __m512d factors = _mm512_set1_pd(factor);
  add_half(_mm512_castsi512_si256(bfloat16), factors, sums.eight[0], sums.eight[1]);
  add_half(_mm512_extracti64x4_epi64(bfloat16, 1), factors, sums.eight[2], sums.eight[3]);
}

/// Largest magnitudes of a term so far, lane by lane.
using Lanes = std::array<uint16_t, kRegisterStep>;

EK_AVX512 inline void see(__m512i bfloat16, Lanes& largest) {
  const __m512i magnitude = _mm512_and_si512(bfloat16, _mm512_set1_epi16(0x7fff));
  _mm512_storeu_si512(largest.data(), _mm512_max_epu16(_mm512_loadu_si512(largest.data()), magnitude));
}

EK_AVX512 uint16_t largest_of(const Lanes& lanes) {
  uint16_t largest = 0;
  for (const uint16_t lane : lanes) largest = std::max(largest, lane);
  return largest;
}

EK_AVX512 void sum_few(std::span<Addend> addends, bool first, std::span<int64_t> sum, Lanes* largest) {
  for (size_t j = 0; j < sum.size(); j += kRegisterStep) {
    Sums sums;
    for (size_t r = 0; r < 4; ++r) sums.eight[r] = first ? _mm512_setzero_si512() : _mm512_loadu_si512(&sum[j + 8 * r]);
    for (size_t i = 0; i < addends.size(); ++i) {
      const auto* values = addends[i].values + j;
      __builtin_prefetch(reinterpret_cast<const char*>(values) + kAhead);
      const __m512i bfloat16 = _mm512_loadu_si512(values);
      see(bfloat16, largest[i]);
      add(bfloat16, addends[i].factor, sums);
    }
    for (size_t r = 0; r < 4; ++r) _mm512_storeu_si512(&sum[j + 8 * r], sums.eight[r]);
  }
}

}  // namespace

bool has_sum_in_registers() { return isa() == Isa::kAvx512; }

void sum_in_registers(std::span<Addend> addends, std::span<int64_t> sum) {
  constexpr size_t kTogether = 16;  // as many streams as a processor follows
  for (size_t begin = 0; begin < addends.size(); begin += kTogether) {
    const auto some = addends.subspan(begin, std::min(kTogether, addends.size() - begin));
    std::array<Lanes, kTogether> largest{};
    sum_few(some, begin == 0, sum, largest.data());
    for (size_t i = 0; i < some.size(); ++i) some[i].largest = largest_of(largest[i]);
  }
}

bool is_whole_lines(const float* out, int64_t count) {
  return reinterpret_cast<uintptr_t>(out) % kLine == 0 && count % kFloats == 0;
}

EK_AVX512 void write_past_caches(std::span<const int64_t> sum, double factor, float* out) {
  const __m512d factors = _mm512_set1_pd(factor);
  for (size_t j = 0; j < sum.size(); j += kFloats) {
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(_mm512_loadu_si512(&sum[j])), factors));
    const __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(_mm512_loadu_si512(&sum[j + 8])), factors));
    _mm512_stream_ps(out + j, _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
  }
  _mm_sfence();  // such writes are in no order with those of a thread that says it is done
}

#else

bool has_sum_in_registers() { return false; }
bool is_whole_lines(const float*, int64_t) { return false; }
void write_past_caches(std::span<const int64_t>, double, float*) {}
void sum_in_registers(std::span<Addend>, std::span<int64_t>) {}

#endif

}  // namespace evenkeel
