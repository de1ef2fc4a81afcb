/// \file  A small world for tests of UB-SMoE: one mixture layer, and clients whose routing and gradients a test sets.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "methods/method_registry.h"
#include "nn/engines/engine_of.h"

namespace evenkeel::testing::ub_smoe {

using namespace methods;

inline constexpr int64_t kExperts = 4, kRank = 2;
inline const std::string kLayer = "model.layers.0.mlp";
inline const std::string kUp = kLayer + ".experts.up_proj", kDown = kLayer + ".experts.down_proj";
inline const std::string kQuery = "model.layers.0.self_attn.q_proj";

/// The sites of one mixture layer of 4 experts, and a query projection.
inline const lora::Sites& sites() {
  static const lora::Sites result{{kUp, {.experts = kExperts, .in = 3, .out = 5, .moe_layer = kLayer}},
                                  {kDown, {.experts = kExperts, .in = 5, .out = 3, .moe_layer = kLayer}},
                                  {kQuery, {.experts = 0, .in = 3, .out = 6, .moe_layer = {}}}};
  return result;
}

inline ServerView server(double lr = 0.01) {
  return {.sites = sites(),
          .moe_layers = {kLayer},
          .num_experts = kExperts,
          .max_top_k = 8,
          .rank = kRank,
          .scale = {.alpha = kRank, .rank = kRank},
          .lr = lr,
          .seed = 5};
}

/// Returns UB-SMoE. \param toml  its keys
inline std::unique_ptr<FederatedMethod> method(const std::string& toml = "") {
  return find_method("ub-smoe").make(config::Table::parse(toml, "test"));
}

/// Returns a client with one row.
inline ClientProfile client(int64_t id, int64_t top_k, bool trains = true) {
  return {.id = id, .budget = 1, .top_k = top_k, .rank = kRank, .examples = 1, .trains = trains};
}

/// Returns a round of clients that differ in K only.
inline RoundView round_of(std::initializer_list<int64_t> top_ks) {
  RoundView round;
  for (const int64_t k : top_ks) {
    round.participants.push_back(client(static_cast<int64_t>(round.participants.size()), k));
    round.weights.push_back(1.0 / static_cast<double>(top_ks.size()));
  }
  return round;
}

/// Returns the routing of a micro-batch whose tokens chose the experts `counts` times.
inline nn::RoutingByLayer routing(std::vector<int64_t> counts, int64_t tokens) {
  return {{kLayer, {.router_logits = {}, .counts = at::tensor(counts, at::kLong), .tokens = tokens}}};
}

/// A client during a step, with zero gradients.
struct Client {
  Client(const FederatedMethod& method, const lora::Payload& sent, const ClientProfile& client_profile)
      : profile(client_profile),
        download(sent),
        view{profile, sites(), common, {}, nn::GateNorm::kRenormSelected, 0, 1, memory},
        setup(method.prepare(download, view)) {
    for (auto& [name, factors] : setup.adapters)
      for (auto* tensor : {&factors.a, &factors.b}) {
        tensor->requires_grad_(true);
        tensor->mutable_grad() = at::zeros_like(*tensor);
      }
  }
  StepView step(double lr = 0.01) {
    return {view, download, setup, micro_batches, lr, metrics, nn::engine_of(engine).step()};
  }
  at::Tensor grad_a(const std::string& site) { return setup.adapters.at(site).a.grad(); }
  at::Tensor grad_b(const std::string& site) { return setup.adapters.at(site).b.grad(); }

  ClientProfile profile;
  lora::Payload download;
  TensorMap memory;
  Common common{};
  ClientView view;
  LocalSetup setup;
  std::vector<nn::RoutingByLayer> micro_batches;
  Metrics metrics;
  nn::EngineKind engine = nn::EngineKind::kKernels;
};

/// Returns a state in which all pseudo-gradients are `value`.
inline ServerState state_with(const FederatedMethod& method, double value) {
  auto state = method.initialize(server());
  for (auto& [name, tensor] : state.global.extras)
    if (name.find("pseudo_grad") != std::string::npos) tensor = at::full_like(tensor, value);
  return state;
}

}  // namespace evenkeel::testing::ub_smoe
