// Measures a 2048 x 2048 projection in bfloat16 with LoRA of rank 20, forward + backward, with both kernels. For
// comparison it measures the same layer with the materialised weight W + BA.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>

#include "nn/dense/linear.h"

namespace evenkeel {
namespace {

constexpr int64_t kWidth = 2048, kRank = 20;

struct Projection {
  at::Tensor x, w;
  lora::LoraFactors lora;
};

Projection make_projection(int64_t tokens) {
  at::manual_seed(5);
  return {at::randn({tokens, kWidth}).requires_grad_(true),
          at::randn({kWidth, kWidth}).mul_(0.02).to(at::kBFloat16),
          {at::randn({kRank, kWidth}).requires_grad_(true), at::randn({kWidth, kRank}).requires_grad_(true), {}, 1}};
}

void count(benchmark::State& state) {
  const double flops = 4.0 * static_cast<double>(state.range(0) * kWidth * kWidth);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void split(benchmark::State& state, nn::MatmulKernel kernel) {
  const auto p = make_projection(state.range(0));
  for (auto _ : state) {
    const auto y = nn::linear(p.x, p.w, {&p.lora}, kernel);
    y.backward(at::ones_like(y));
  }
  count(state);
}

void materialised(benchmark::State& state) {
  const auto p = make_projection(state.range(0));
  for (auto _ : state) {
    const auto w = p.w + at::mm(p.lora.b, p.lora.a).to(at::kBFloat16);
    const auto y = at::mm(p.x.to(at::kBFloat16), w.t());
    y.backward(at::ones_like(y));
  }
  count(state);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("tokens")->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const int64_t tokens : {8, 32, 256, 2048}) bench->Arg(tokens);
}

BENCHMARK_CAPTURE(split, own, nn::MatmulKernel::kFp32Exact)->Apply(shapes);
BENCHMARK_CAPTURE(split, widen, nn::MatmulKernel::kUpcast)->Apply(shapes);
BENCHMARK_CAPTURE(split, native, nn::MatmulKernel::kBf16Vendor)->Apply(shapes);
BENCHMARK(materialised)->Apply(shapes);

}  // namespace
}  // namespace evenkeel

BENCHMARK_MAIN();
