/// \file  Measures the limits of this machine in the run that reports them: multiply-adds in registers, and bytes read
/// from memory.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "base/system/dispatch.h"

namespace evenkeel::bench {

inline volatile float sum_seen = 0;
inline volatile int64_t bits_seen = 0;

// 24 independent sums in registers hide the latency of a multiply-add. Their start values are unknown to the compiler,
// which could merge them otherwise. \return multiply-adds per step
#define EK_MULTIPLY_ADDS(name, instructions, bytes, registers)                                 \
  __attribute__((target(instructions))) inline int64_t name(int64_t steps) {                   \
    using Vector __attribute__((vector_size(bytes))) = float;                                  \
    Vector sums[registers];                                                                    \
    for (int i = 0; i < registers; ++i) sums[i] = Vector{} + static_cast<float>(i) * sum_seen; \
    for (int64_t i = 0; i < steps; ++i) {                                                      \
      _Pragma("GCC unroll 24") for (auto& sum : sums) sum = sum * 0.999f + 0.001f;             \
    }                                                                                          \
    for (int i = 1; i < registers; ++i) sums[0] += sums[i];                                    \
    sum_seen = sums[0][0];                                                                     \
    return registers * bytes / 4;                                                              \
  }
#if defined(__x86_64__)
EK_MULTIPLY_ADDS(multiply_adds_avx512, "avx512f", 64, 24)
EK_MULTIPLY_ADDS(multiply_adds_avx2, "avx2,fma", 32, 12)
#endif
#undef EK_MULTIPLY_ADDS

#if defined(__x86_64__)
// The same for dot products of pairs of bfloat16.
__attribute__((target("avx512f,avx512bf16"))) inline int64_t dot_products(int64_t steps) {
  constexpr int kSums = 24;
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i) * sum_seen);
  const __m512 numbers = _mm512_set1_ps(sum_seen);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 24
    for (auto& sum : sums)
      sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(numbers), reinterpret_cast<__m512bh>(numbers));
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  sum_seen = _mm512_cvtss_f32(sums[0]);
  return int64_t{kSums} * 32;
}

// The same for tiles of 16 by 16 sums and 32 terms each. Four tiles of sums hide the latency of a product.
__attribute__((target("amx-tile,amx-bf16"))) inline int64_t tile_products(int64_t steps) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14]{};
    uint16_t row_bytes[16]{64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16]{16, 16, 16, 16, 16, 16, 16, 16};
  } shape;
  __asm__ volatile("ldtilecfg %0" : : "m"(shape));
  for (int64_t i = 0; i < steps; i += 16)
    __asm__ volatile(
        "tdpbf16ps %tmm6, %tmm4, %tmm0\n\ttdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
        "tdpbf16ps %tmm6, %tmm5, %tmm2\n\ttdpbf16ps %tmm7, %tmm5, %tmm3");
  __asm__ volatile("tilerelease");
  return 4 * 16 * 16 * 32 / 16;
}
#else
inline int64_t dot_products(int64_t) { return 0; }
inline int64_t tile_products(int64_t) { return 0; }
#endif

inline int64_t multiply_adds(int64_t steps) {
#if defined(__x86_64__)
  if (isa() == Isa::kAvx512) return multiply_adds_avx512(steps);
  if (isa() == Isa::kAvx2) return multiply_adds_avx2(steps);
#endif
  float sum = 0;
  for (; steps > 0; --steps) sum = sum * 0.999f + 0.001f;
  sum_seen = sum;
  return 1;
}

/// Reads four streams at a time, because one stream does not use all outstanding requests of a thread.
struct ReadAll {
  static EK_INLINE int64_t run(const int64_t* numbers, int64_t n) {
    constexpr int kStreams = 4, kLine = 8;
    const int64_t part = n / kStreams;
    int64_t found[kLine] = {};
    for (int64_t i = 0; i + kLine <= part; i += kLine)
      for (int s = 0; s < kStreams; ++s)
        for (int j = 0; j < kLine; ++j) found[j] |= numbers[s * part + i + j];
    int64_t all = 0;
    for (const int64_t bits : found) all |= bits;
    return all;
  }
};

/// Returns the best time of three runs of `work` on `threads` threads.
inline double seconds_of(const std::function<void(int64_t thread)>& work, int64_t threads) {
  double best = 1e30;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    at::parallel_for(0, threads, 1, [&](int64_t thread, int64_t) { work(thread); });
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct MachineLimits {
  double gflops = 0;           ///< float32 multiply-adds, two operations each
  double bfloat16_gflops = 0;  ///< same for bfloat16, with tiles or pairs; float32's rate on processors without them
  double gbytes = 0;           ///< GB/s read from memory
};

/// Returns twice the size of the last-level cache, at least 128 MiB.
inline int64_t beyond_caches() {
  const int64_t cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max(int64_t{1} << 27, 2 * cache);
}

inline MachineLimits measure_limits(int64_t threads) {
  constexpr int64_t kSteps = 4'000'000;  // about 10 ms, so that the time to wake a thread is negligible
  static const auto memory = at::ones({beyond_caches() / 8}, at::kLong);
  const auto gflops_of = [&](int64_t (*work)(int64_t)) {
    std::atomic<int64_t> per_step{0};
    const double seconds = seconds_of([&](int64_t) { per_step = work(kSteps); }, threads);
    return 2e-9 * static_cast<double>(per_step * kSteps * threads) / seconds;
  };
  const int64_t share = memory.numel() / threads;
  const auto read = [&](int64_t thread) {
    bits_seen = vectorised<ReadAll>(memory.const_data_ptr<int64_t>() + thread * share, share);
  };
  const double gflops = gflops_of(multiply_adds), dots = has_bfloat16_dots() ? gflops_of(dot_products) : 0,
               tiles = has_bfloat16_tiles() ? gflops_of(tile_products) : 0;
  return {gflops, std::max({gflops, dots, tiles}),
          8e-9 * static_cast<double>(share * threads) / seconds_of(read, threads)};
}

}  // namespace evenkeel::bench
