// Measures one MoE layer with LoRA of rank 20 on all three projections, forward and forward + backward. GFLOP/s counts
// 2 per multiply-add of the frozen products in the forward pass, and of dX in the backward pass. The other counter is
// page faults per step.

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "nn/moe/experts.h"

namespace evenkeel {
namespace {

struct Layer {
  nn::ExpertWeights weights;
  lora::LoraFactors gate, up, down;
  at::Tensor x_TD;
  // Used in turn; a single routing would favour caches that depend on the number of rows.
  std::vector<nn::Routing> routings;
};

lora::LoraFactors factors(int64_t experts, int64_t rank, int64_t in, int64_t out) {
  return {
      at::randn({experts, rank, in}).requires_grad_(true), at::randn({experts, out, rank}).requires_grad_(true), {}, 1};
}

Layer make_layer(int64_t tokens, int64_t hidden, int64_t width, int64_t experts, int64_t top_k, at::ScalarType dtype) {
  at::manual_seed(5);
  Layer layer;
  for (int64_t e = 0; e < experts; ++e) {
    layer.weights.gate.push_back(at::randn({width, hidden}).mul_(0.02).to(dtype));
    layer.weights.up.push_back(at::randn({width, hidden}).mul_(0.02).to(dtype));
    layer.weights.down.push_back(at::randn({hidden, width}).mul_(0.02).to(dtype));
  }
  layer.gate = factors(experts, 20, hidden, width);
  layer.up = factors(experts, 20, hidden, width);
  layer.down = factors(experts, 20, width, hidden);
  layer.x_TD = at::randn({tokens, hidden}).requires_grad_(true);
  nn::RouterOptions options;
  options.top_k = top_k;
  for (int i = 0; i < 16; ++i) layer.routings.push_back(nn::route(at::randn({tokens, experts}), options, {}, false));
  return layer;
}

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void run(benchmark::State& state, int64_t tokens, int64_t hidden, int64_t width, int64_t top_k, bool backward,
         nn::MatmulKernel kernel) {
  constexpr int64_t kExperts = 64;
  const auto layer = make_layer(tokens, hidden, width, kExperts, top_k, at::kBFloat16);
  const nn::ExpertFactors adapters{{&layer.gate}, {&layer.up}, {&layer.down}};
  const int64_t faults = page_faults();
  size_t step = 0;
  for (auto _ : state) {
    const auto y =
        nn::experts(layer.x_TD, layer.routings[step++ % layer.routings.size()], layer.weights, adapters, kernel);
    if (backward) y.backward(at::ones_like(y));
    benchmark::DoNotOptimize(y);
  }
  const double flops = 2.0 * 3 * static_cast<double>(tokens * top_k * hidden * width) * (backward ? 2 : 1);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["faults"] = static_cast<double>(page_faults() - faults) / static_cast<double>(state.iterations());
}

void register_all() {
  struct Shape {
    const char* name;
    int64_t tokens, hidden, width;
  };
  for (const Shape& shape :
       {Shape{"tiny", 1024, 128, 64}, Shape{"olmoe_256", 256, 2048, 1024}, Shape{"olmoe_2048", 2048, 2048, 1024}})
    for (const int64_t k : {1, 8})
      for (const bool backward : {false, true})
        for (const auto kernel : {nn::MatmulKernel::kFp32Exact, nn::MatmulKernel::kUpcast,
                                  nn::MatmulKernel::kBf16Vendor, nn::MatmulKernel::kBf16Dot})
          benchmark::RegisterBenchmark(
              concat("experts/", shape.name, "/k", k, backward ? "/step/" : "/forward/", config::name_of(kernel))
                  .c_str(),
              run, shape.tokens, shape.hidden, shape.width, k, backward, kernel)
              ->Unit(benchmark::kMillisecond)
              ->UseRealTime();
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
