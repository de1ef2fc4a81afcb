// What privacy of clients costs beside training: clipping a change to integers, and its discrete Gaussian noise, which
// the server adds once per round or each client to its own change. Times are processor time of all threads.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include <vector>

#include "privacy/discrete_gaussian.h"
#include "privacy/member_noise.h"

namespace evenkeel::privacy {
namespace {

constexpr int64_t kFedSb = 1'250'000;  // values of an upload of OLMoE-1B-7B

void BM_Clip(benchmark::State& state) {
  const auto change = at::randn({state.range(0)}) * 1e-3;
  const auto grid = grid_of(state.range(0), 0.5);
  const std::span<const float> values(change.const_data_ptr<float>(), static_cast<size_t>(change.numel()));
  for (auto _ : state) benchmark::DoNotOptimize(clipped(values, grid).values.data());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Clip)->Arg(kFedSb)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

/// The digest of the change, and all draws. \param state  values, clients whose noise is enough
void BM_Noise(benchmark::State& state) {
  std::vector<int64_t> change(static_cast<size_t>(state.range(0)) + 1, 0);
  const auto noise = member_noise(1, 0, grid_of(state.range(0), 0.5), state.range(1));
  const auto key = crypto::Secret::random();
  for (auto _ : state) add_member_noise(change, noise, key, "bench", 0);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Noise)->Args({kFedSb, 1})->Args({kFedSb, 26})->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace evenkeel::privacy

BENCHMARK_MAIN();
