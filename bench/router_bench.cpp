// Measures selection and gating of T tokens over 64 experts, with and without dynamic modulated routing, forward and
// backward. For comparison it measures the library's softmax and topk.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "nn/moe/routing.h"

namespace evenkeel {
namespace {

constexpr int64_t kExperts = 64;

void route_tokens(benchmark::State& state, bool modulated, bool backward) {
  at::manual_seed(5);
  const auto logits = at::randn({state.range(0), kExperts}).requires_grad_(backward);
  nn::RouterOptions options;
  options.top_k = state.range(1);
  options.gate_norm = nn::GateNorm::kRenormSelected;
  options.num_candidates = modulated ? 2 : 0;
  const auto phi = at::randn({kExperts}) * 0.3;
  for (auto _ : state) {
    const auto routing = nn::route(logits, options, phi, false);
    if (backward) routing.weights.backward(at::ones_like(routing.weights));
    benchmark::DoNotOptimize(routing);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void library_topk(benchmark::State& state) {
  at::manual_seed(5);
  const auto logits = at::randn({state.range(0), kExperts});
  for (auto _ : state) benchmark::DoNotOptimize(at::topk(at::softmax(logits, 1), state.range(1), 1));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "k"})->Unit(benchmark::kMicrosecond)->UseRealTime();
  for (const int64_t tokens : {256, 2048})
    for (const int64_t k : {1, 8}) bench->Args({tokens, k});
}

BENCHMARK_CAPTURE(route_tokens, plain, false, false)->Apply(shapes);
BENCHMARK_CAPTURE(route_tokens, modulated, true, false)->Apply(shapes);
BENCHMARK_CAPTURE(route_tokens, modulated_step, true, true)->Apply(shapes);
BENCHMARK(library_topk)->Apply(shapes);

}  // namespace
}  // namespace evenkeel

BENCHMARK_MAIN();
