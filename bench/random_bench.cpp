// Compares normal draws of a random stream with the same formula over the C library's logarithm, sine and cosine. Times
// are per value.
#include <benchmark/benchmark.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/random/random.h"

namespace evenkeel {
namespace {

constexpr size_t kValues = size_t{1} << 16;

void fill_normal(benchmark::State& state) {
  std::vector<float> values(kValues);
  RandomStream stream(1, "bench");
  for (auto _ : state) {
    stream.fill_normal(values, 0.02);
    benchmark::DoNotOptimize(values.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kValues));
}
BENCHMARK(fill_normal);

void c_library(benchmark::State& state) {
  std::vector<float> values(kValues);
  RandomStream stream(1, "bench");
  for (auto _ : state) {
    for (size_t i = 0; i < values.size(); i += 2) {
      const uint64_t words = stream.next_u64();
      const double radius = 0.02 * std::sqrt(-2.0 * std::log((static_cast<uint32_t>(words) + 0.5) * 0x1p-32));
      const double angle = 2.0 * std::numbers::pi * 0x1p-32 * static_cast<double>(words >> 32);
      values[i] = static_cast<float>(radius * std::cos(angle));
      values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
    benchmark::DoNotOptimize(values.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kValues));
}
BENCHMARK(c_library);

}  // namespace
}  // namespace evenkeel

BENCHMARK_MAIN();
