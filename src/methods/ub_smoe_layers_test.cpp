// Checks that UB-SMoE, which edits all layers at once, edits each layer as if it were alone.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "methods/method_registry.h"
#include "nn/engines/engine_of.h"
#include "nn/testing.h"

namespace evenkeel::methods::ubsmoe {
namespace {

using testing::random_tensor;

constexpr int64_t kExperts = 4, kRank = 2;
const std::string kFirst = "model.layers.0.mlp", kSecond = "model.layers.1.mlp";

lora::Sites sites_of(const std::vector<std::string>& layers) {
  lora::Sites sites;
  for (const auto& layer : layers) {
    sites[layer + ".experts.up_proj"] = {.experts = kExperts, .in = 3, .out = 5, .moe_layer = layer};
    sites[layer + ".experts.down_proj"] = {.experts = kExperts, .in = 5, .out = 3, .moe_layer = layer};
  }
  return sites;
}

/// Returns a tensor that depends only on its name.
at::Tensor named(const std::string& name, const at::Tensor& like) {
  return random_tensor(like.sizes(), std::hash<std::string>()(name) % 1000, at::kFloat);
}

/// Returns by site and layer the gradients and factors of a client after the edits of two steps, and phi's gradient.
TensorMap edited(const std::string& toml, nn::EngineKind engine, const std::vector<std::string>& layers,
                 const std::vector<nn::RoutingByLayer>& micro_batches) {
  const auto method = find_method("ub-smoe").make(config::Table::parse(toml, "test"));
  const auto sites = sites_of(layers);
  const ClientProfile client{.id = 0, .budget = 1, .top_k = 1, .rank = kRank, .examples = 1, .trains = true};
  auto state = method->initialize({.sites = sites,
                                   .moe_layers = layers,
                                   .num_experts = kExperts,
                                   .max_top_k = 2,
                                   .rank = kRank,
                                   .scale = {.alpha = kRank, .rank = kRank},
                                   .lr = 0.01,
                                   .seed = 5});
  for (auto& [name, tensor] : state.global.extras) tensor = 3 * named(name, tensor);
  const Common common;
  TensorMap memory, result;
  const ClientView view{client, sites, common, {}, nn::GateNorm::kRenormSelected, 0, 1, memory};
  const auto download = method->broadcast(state, client, {.participants = {client}, .weights = {1.0}});
  auto setup = method->prepare(download, view);
  for (auto& [name, factors] : setup.adapters)
    for (auto* tensor : {&factors.a, &factors.b}) {
      tensor->requires_grad_(true);
      tensor->mutable_grad() = named(name + "grad", *tensor);
    }
  for (auto& [name, phi_E] : setup.extra_trainables) phi_E.requires_grad_(true);
  Metrics metrics;
  const StepView step{view, download, setup, micro_batches, 0.01, metrics, nn::engine_of(engine).step()};
  for (int64_t i = 0; i < 2; ++i) method->edit_gradients(step), method->edit_parameters(step);
  method->penalty(step).backward();
  for (const auto& [name, factors] : setup.adapters)
    result[name + " a"] = factors.a.detach(), result[name + " b"] = factors.b.grad();
  for (const auto& [name, phi_E] : setup.extra_trainables) result[name] = phi_E.grad();
  return result;
}

nn::RoutingStats counts(std::vector<int64_t> values) {
  return {.router_logits = {}, .counts = at::tensor(values, at::kLong), .tokens = 8};
}

TEST(UbSmoeLayers, AreEditedAsIfEachWereAlone) {
  const nn::RoutingStats first[] = {counts({5, 3, 0, 0}), counts({2, 0, 0, 6})};
  const nn::RoutingStats second[] = {counts({0, 0, 7, 1}), counts({0, 0, 8, 0})};
  for (const std::string clip : {"relative", "per_expert_norm", "elementwise", "off"})
    for (const std::string apply : {"adam_grad", "decoupled_sgd"})
      for (const std::string activity : {"step_union", "token_weighted", "micro_union"})
        for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten}) {
          const auto toml = concat("pg_clip = 0.8\nphi_range = [-0.5, 0.5]\npg_clip_mode = \"", clip,
                                   "\"\npg_apply = \"", apply, "\"\npg_activity = \"", activity, "\"");
          auto alone = edited(toml, engine, {kFirst}, {{{kFirst, first[0]}}, {{kFirst, first[1]}}});
          alone.merge(edited(toml, engine, {kSecond}, {{{kSecond, second[0]}}, {{kSecond, second[1]}}}));
          const auto together =
              edited(toml, engine, {kFirst, kSecond},
                     {{{kFirst, first[0]}, {kSecond, second[0]}}, {{kFirst, first[1]}, {kSecond, second[1]}}});
          ASSERT_EQ(together.size(), alone.size());
          for (const auto& [name, tensor] : together) EXPECT_TRUE(tensor.equal(alone.at(name))) << toml << ' ' << name;
        }
}

}  // namespace
}  // namespace evenkeel::methods::ubsmoe
