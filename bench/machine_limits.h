/// \file  What this machine can do at most, measured in the run that quotes it: multiply-adds in registers, and bytes
/// read from memory.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "base/dispatch.h"

namespace evenkeel::bench {

struct MultiplyAdd {
  static constexpr int kChains = 24 * 16;
  static EK_INLINE float run(int64_t steps) {
    float sums[kChains];
    for (int j = 0; j < kChains; ++j) sums[j] = static_cast<float>(j);
    for (int64_t i = 0; i < steps; ++i)
      for (int j = 0; j < kChains; ++j) sums[j] = sums[j] * 0.999f + 0.001f;
    float total = 0;
    for (const float sum : sums) total += sum;
    return total;
  }
};

struct Read {
  static EK_INLINE int64_t run(const int64_t* numbers, int64_t n) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; ++i) found |= numbers[i];
    return found;
  }
};

/// Best of three.
inline double seconds_of(const std::function<void(int64_t)>& work, int64_t threads) {
  double best = 1e30;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    at::parallel_for(0, threads, 1, [&](int64_t thread, int64_t) { work(thread); });
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct MachineLimits {
  double gflops = 0;  ///< float32 multiply-adds, two operations each
  double gbytes = 0;  ///< GB/s read from memory
};

inline MachineLimits measure_limits(int64_t threads) {
  constexpr int64_t kSteps = 3'000'000, kBytes = int64_t{1} << 28;
  [[maybe_unused]] static volatile float sink = 0;
  [[maybe_unused]] static volatile int64_t seen = 0;
  const double compute = seconds_of([](int64_t) { sink = vectorised<MultiplyAdd>(kSteps); }, threads);
  const auto memory = at::ones({kBytes / 8}, at::kLong);
  const int64_t share = kBytes / 8 / threads;
  const auto read = [&](int64_t thread) {
    seen = vectorised<Read>(memory.const_data_ptr<int64_t>() + thread * share, share);
  };
  return {2e-9 * MultiplyAdd::kChains * kSteps * static_cast<double>(threads) / compute,
          1e-9 * kBytes / seconds_of(read, threads)};
}

}  // namespace evenkeel::bench
