// Measures AdamW over the adapters of one OLMoE layer at rank 20. It compares one fused pass over stacked tensors with
// LibTorch's optimiser over the same tensors, and over one tensor per expert, as frameworks with one module per expert
// store them. Argument: number of experts.
#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <torch/optim/adamw.h>

#include <vector>

#include "train/optimizer.h"

namespace evenkeel {
namespace {

constexpr int64_t kRank = 20, kHidden = 2048, kWidth = 1024;

std::vector<at::Tensor> stacked(int64_t experts) {
  std::vector<at::Tensor> result;
  for (const auto& [in, out] : {std::pair{kHidden, kWidth}, {kHidden, kWidth}, {kWidth, kHidden}}) {
    result.push_back(at::randn({experts, kRank, in}));
    result.push_back(at::randn({experts, out, kRank}));
  }
  return result;
}

std::vector<at::Tensor> one_per_expert(int64_t experts) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : stacked(experts))
    for (int64_t e = 0; e < experts; ++e) result.push_back(tensor[e].clone());
  return result;
}

std::vector<at::Tensor> with_gradients(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors) {
    tensor.requires_grad_(true);
    tensor.mutable_grad() = at::randn_like(tensor);
  }
  return tensors;
}

void count(benchmark::State& state, const std::vector<at::Tensor>& tensors) {
  int64_t values = 0;
  for (const auto& tensor : tensors) values += tensor.numel();
  state.SetItemsProcessed(state.iterations() * values);
}

void fused_stacked(benchmark::State& state) {
  const auto tensors = with_gradients(stacked(state.range(0)));
  train::AdamW adamw(tensors, train::OptimizerConfig{});
  for (auto _ : state) adamw.step();
  count(state, tensors);
}

void fused_active_half(benchmark::State& state) {
  const auto tensors = with_gradients(stacked(state.range(0)));
  train::AdamW adamw(tensors, train::OptimizerConfig{});
  const std::vector<at::Tensor> active(tensors.size(), at::arange(state.range(0)).remainder(2).eq(0));
  for (auto _ : state) adamw.step_active(active);
  count(state, tensors);
}

void libtorch(benchmark::State& state, std::vector<at::Tensor> (*make)(int64_t)) {
  const auto tensors = with_gradients(make(state.range(0)));
  torch::optim::AdamW adamw(tensors, torch::optim::AdamWOptions(2e-4).betas({0.9, 0.95}).eps(1e-5).weight_decay(0.01));
  for (auto _ : state) adamw.step();
  count(state, tensors);
}

BENCHMARK(fused_stacked)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(fused_active_half)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(libtorch, stacked, stacked)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(libtorch, one_per_expert, one_per_expert)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace evenkeel

BENCHMARK_MAIN();
