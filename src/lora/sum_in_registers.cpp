#include "lora/sum_in_registers.h"

#include <algorithm>
#include <array>

#include "base/system/dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)  // g++ 12 warns about undefined operands inside its own intrinsics (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace evenkeel::lora {

#if defined(__x86_64__)

#define EK_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

namespace {

constexpr int kPrefetchBytes = 2048;  // bytes
constexpr size_t kLineBytes = 64;     // bytes
constexpr size_t kLineFloats = 16;    // floats per line

/// Four registers of eight sums, in the order of the values of low() and high().
struct Sums {
  __m512i eight[4];
};

EK_AVX512 inline __m512i rounded(__m256 x, __m512d factor) {
  return _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtps_pd(x), factor));
}

/// Adds sixteen values to two registers of sums.
EK_AVX512 inline void add_half(__m512 x, __m512d factor, __m512i& low, __m512i& high) {
  low = _mm512_add_epi64(low, rounded(_mm512_castps512_ps256(x), factor));
  high = _mm512_add_epi64(high, rounded(_mm512_extractf32x8_ps(x, 1), factor));
}

/// Loaded values of a term in 16 bits.
struct Narrow {
  using Bits = uint16_t;
  static constexpr int kRegisters = 1;
  __m512i all[kRegisters];

  EK_AVX512 static __m512i magnitude(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)); }
  EK_AVX512 static __m512i larger(__m512i x, __m512i y) { return _mm512_max_epu16(x, y); }
  // Returns every second value, from the first or from the second. Each takes one instruction.
  EK_AVX512 __m512 low() const { return _mm512_castsi512_ps(_mm512_slli_epi32(all[0], 16)); }
  EK_AVX512 __m512 high() const {
    return _mm512_castsi512_ps(_mm512_and_si512(all[0], _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }

  EK_AVX512 static Sums sums_at(const int64_t* sum) {
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14),
                  odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    Sums sums;
    for (size_t half = 0; half < 2; ++half) {
      const __m512i x = _mm512_loadu_si512(sum + 16 * half), y = _mm512_loadu_si512(sum + 16 * half + 8);
      sums.eight[half] = _mm512_permutex2var_epi64(x, even, y);
      sums.eight[half + 2] = _mm512_permutex2var_epi64(x, odd, y);
    }
    return sums;
  }
  EK_AVX512 static void put(const Sums& sums, int64_t* sum) {
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                  second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    for (size_t half = 0; half < 2; ++half) {
      const __m512i even = sums.eight[half], odd = sums.eight[half + 2];
      _mm512_storeu_si512(sum + 16 * half, _mm512_permutex2var_epi64(even, first, odd));
      _mm512_storeu_si512(sum + 16 * half + 8, _mm512_permutex2var_epi64(even, second, odd));
    }
  }
};
struct Wide {
  using Bits = uint32_t;
  static constexpr int kRegisters = 2;
  __m512i all[kRegisters];

  EK_AVX512 static __m512i magnitude(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff)); }
  EK_AVX512 static __m512i larger(__m512i x, __m512i y) { return _mm512_max_epu32(x, y); }
  EK_AVX512 __m512 low() const { return _mm512_castsi512_ps(all[0]); }
  EK_AVX512 __m512 high() const { return _mm512_castsi512_ps(all[1]); }

  EK_AVX512 static Sums sums_at(const int64_t* sum) {
    Sums sums;
    for (size_t r = 0; r < 4; ++r) sums.eight[r] = _mm512_loadu_si512(sum + 8 * r);
    return sums;
  }
  EK_AVX512 static void put(const Sums& sums, int64_t* sum) {
    for (size_t r = 0; r < 4; ++r) _mm512_storeu_si512(sum + 8 * r, sums.eight[r]);
  }
};

/// The largest magnitudes of a term so far, per lane.
template <typename Step>
using Lanes = std::array<typename Step::Bits, kRegisterStep>;

template <typename Step>
EK_AVX512 inline Step load(const typename Step::Bits* values) {
  Step step;
  for (int i = 0; i < Step::kRegisters; ++i) {
    const auto* line = reinterpret_cast<const char*>(values) + static_cast<size_t>(i) * kLineBytes;
    __builtin_prefetch(line + kPrefetchBytes);
    step.all[i] = _mm512_loadu_si512(line);
  }
  return step;
}

template <typename Step>
EK_AVX512 inline void see(const Step& step, Lanes<Step>& largest) {
  for (int i = 0; i < Step::kRegisters; ++i) {
    auto* lanes = reinterpret_cast<char*>(largest.data()) + static_cast<size_t>(i) * kLineBytes;
    _mm512_storeu_si512(lanes, Step::larger(_mm512_loadu_si512(lanes), Step::magnitude(step.all[i])));
  }
}

template <typename Step>
EK_AVX512 inline void add(const Step& step, double factor, Sums& sums) {
  const __m512d factors = _mm512_set1_pd(factor);
  add_half(step.low(), factors, sums.eight[0], sums.eight[1]);
  add_half(step.high(), factors, sums.eight[2], sums.eight[3]);
}

template <typename Step>
EK_AVX512 void sum_few(std::span<Addend<typename Step::Bits>> addends, bool first, std::span<int64_t> sum,
                       Lanes<Step>* largest) {
  for (size_t j = 0; j < sum.size(); j += kRegisterStep) {
    Sums sums = first ? Sums{} : Step::sums_at(&sum[j]);
    for (size_t i = 0; i < addends.size(); ++i) {
      const auto step = load<Step>(addends[i].values + j);
      see(step, largest[i]);
      add(step, addends[i].factor, sums);
    }
    Step::put(sums, &sum[j]);
  }
}

template <typename Step>
void sum_all(std::span<Addend<typename Step::Bits>> addends, std::span<int64_t> sum) {
  constexpr size_t kMaxStreams = 16;  // as many memory streams as a processor prefetches
  for (size_t begin = 0; begin < addends.size(); begin += kMaxStreams) {
    const auto some = addends.subspan(begin, std::min(kMaxStreams, addends.size() - begin));
    std::array<Lanes<Step>, kMaxStreams> largest{};
    sum_few<Step>(some, begin == 0, sum, largest.data());
    for (size_t i = 0; i < some.size(); ++i) some[i].largest = *std::max_element(largest[i].begin(), largest[i].end());
  }
}

}  // namespace

bool has_sum_in_registers() { return isa() == Isa::kAvx512; }

void sum_in_registers(std::span<Addend<uint16_t>> addends, std::span<int64_t> sum) { sum_all<Narrow>(addends, sum); }
void sum_in_registers(std::span<Addend<uint32_t>> addends, std::span<int64_t> sum) { sum_all<Wide>(addends, sum); }

bool is_whole_lines(const float* out, int64_t count) {
  return reinterpret_cast<uintptr_t>(out) % kLineBytes == 0 && count % kLineFloats == 0;
}

EK_AVX512 void store_nontemporal(std::span<const int64_t> sum, double factor, float* out) {
  const __m512d factors = _mm512_set1_pd(factor);
  for (size_t j = 0; j < sum.size(); j += kLineFloats) {
    const __m256 low = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(_mm512_loadu_si512(&sum[j])), factors));
    const __m256 high = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(_mm512_loadu_si512(&sum[j + 8])), factors));
    _mm512_stream_ps(out + j, _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
  }
  _mm_sfence();  // non-temporal stores need a fence before another thread reads them
}

#else

bool has_sum_in_registers() { return false; }
bool is_whole_lines(const float*, int64_t) { return false; }
void store_nontemporal(std::span<const int64_t>, double, float*) {}
void sum_in_registers(std::span<Addend<uint16_t>>, std::span<int64_t>) {}
void sum_in_registers(std::span<Addend<uint32_t>>, std::span<int64_t>) {}

#endif

}  // namespace evenkeel::lora
