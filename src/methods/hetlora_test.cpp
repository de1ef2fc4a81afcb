// Compares HetLoRA's penalty with its equation, computed site by site and expert by expert.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <utility>
#include <vector>

#include "methods/method_registry.h"
#include "nn/testing.h"

namespace evenkeel::methods::hetlora_test {
namespace {

using testing::random_tensor;

constexpr int64_t kRank = 5;
constexpr double kLambda = 0.3;

/// Adapters of two layers in float64: attention of two shapes, and stacks of three experts.
lora::AdapterState two_layers() {
  lora::AdapterState adapters;
  uint64_t seed = 3;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const auto add = [&](const std::string& site, std::vector<int64_t> a, std::vector<int64_t> b) {
      adapters[layer + site] = {.a = random_tensor(a, seed).requires_grad_(true),
                                .b = random_tensor(b, seed + 1).requires_grad_(true)};
      seed += 2;
    };
    add("self_attn.q_proj", {kRank, 7}, {6, kRank});
    add("self_attn.k_proj", {kRank, 7}, {4, kRank});
    add("mlp.experts.up_proj", {3, kRank, 7}, {3, 8, kRank});
    add("mlp.experts.down_proj", {3, kRank, 8}, {3, 7, kRank});
    add("mlp.experts.gate_proj", {3, kRank, 7}, {3, 8, kRank});
  }
  return adapters;
}

std::vector<at::Tensor> leaves_of(const lora::AdapterState& adapters) {
  std::vector<at::Tensor> leaves;
  for (const auto& [site, factors] : adapters) leaves.insert(leaves.end(), {factors.a, factors.b});
  return leaves;
}

/// Returns lambda sum_modules |B[:, q:]| |A[q:, :]|.
at::Tensor equation(const lora::AdapterState& adapters, int64_t q) {
  auto sum = at::zeros({}, at::kDouble);
  for (const auto& [site, factors] : adapters) {
    const auto a = factors.a.dim() == 2 ? factors.a.unsqueeze(0) : factors.a;
    const auto b = factors.b.dim() == 2 ? factors.b.unsqueeze(0) : factors.b;
    for (int64_t e = 0; e < a.size(0); ++e)
      sum = sum + b[e].slice(1, q).square().sum().sqrt() * a[e].slice(0, q).square().sum().sqrt();
  }
  return kLambda * sum;
}

/// Returns the penalty of `adapters` in a step.
at::Tensor penalty(const std::string& toml, const lora::AdapterState& adapters) {
  const auto method = find_method("hetlora").make(config::Table::parse(toml, "test"));
  const lora::Sites sites;
  const lora::Payload download;
  const Common common;
  const ClientProfile client;
  TensorMap memory;
  const ClientView view{.client = client, .sites = sites, .common = common, .scale = {}, .memory = memory};
  LocalSetup setup{.adapters = adapters, .router = {}, .extra_trainables = {}};
  Metrics metrics;
  return method->penalty({view, download, setup, {}, 0.1, metrics});
}

TEST(HetLora, PenaltyIsTheSumOverModulesOfTheTailsNorms) {
  for (const auto& [gamma, q] : {std::pair{"0.99", 4}, std::pair{"0.5", 2}}) {
    const auto adapters = two_layers();
    const auto ours = penalty(concat("lambda = ", kLambda, "\ngamma = ", gamma), adapters);
    const auto right = equation(adapters, q);
    EXPECT_NEAR(ours.item<double>(), right.item<double>(), 1e-12 * right.item<double>());
    const auto leaves = leaves_of(adapters);
    const auto our_gradients = torch::autograd::grad({ours}, leaves);
    const auto right_gradients = torch::autograd::grad({right}, leaves);
    for (size_t i = 0; i < leaves.size(); ++i)
      EXPECT_LT(testing::max_difference(our_gradients[i], right_gradients[i]), 1e-13) << gamma << " tensor " << i;
  }
}

TEST(HetLora, HasNoPenaltyWithAWeightOfZero) { EXPECT_FALSE(penalty("lambda = 0.0", two_layers()).defined()); }

}  // namespace
}  // namespace evenkeel::methods::hetlora_test
