/// \file  A federation small enough to run whole rounds in a unit test: a random two-layer model with 6 experts, four
/// unequal clients with a few made-up rows each. No two sizes are equal.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "methods/method_registry.h"
#include "models/causal_lm.h"
#include "train/local_training.h"

namespace evenkeel {

struct TinyFederation {
  explicit TinyFederation(std::string_view family = "olmoe");

  ServerView server() const;
  at::Tensor gradient_sum(const std::string& site, const GradientSample& sample) const;
  ClientView view(const ClientProfile& client, int64_t round, const Common& common) const;
  /// The same for a method that has nothing in common.
  ClientView view(const ClientProfile& client, int64_t round) const;
  LoraScale scale() const { return {.alpha = 6, .rank = rank}; }
  /// All clients, or those named, with their shares of the rows.
  RoundView round(int64_t number, const std::vector<int64_t>& ids = {}) const;
  LocalResult train(const FederatedMethod& method, const ServerState& state, const RoundView& round,
                    const ClientProfile& client) const;
  std::vector<ClientUpdate> train_all(const FederatedMethod& method, const ServerState& state,
                                      const RoundView& round) const;
  /// What the round makes of the uploads: the method's aggregate, and the base change that everybody gains.
  ServerState aggregate(const FederatedMethod& method, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const;
  /// `rounds` rounds of all clients from a fresh start.
  ServerState run(const FederatedMethod& method, int64_t rounds) const;

  std::unique_ptr<CausalLm> model;
  Sites sites;
  std::vector<ClientProfile> clients;  ///< K = 1, 2, 3, 3
  std::vector<std::vector<Example>> shards;
  LocalTraining training;
  int64_t rank = 4;
  GateNorm gate_norm = GateNorm::kRenormSelected;
  uint64_t seed = 11;
  mutable TensorMap memory;
};

/// `name` with the keys of `toml`.
std::unique_ptr<FederatedMethod> make_method(std::string_view name, const std::string& toml = "");

/// The change of every weight that a state stands for: base change and adapters together, [*, out, in] float64.
std::map<std::string, at::Tensor> effect(const ServerState& state);

/// Every factor of both, bit for bit.
bool equal(const AdapterState& left, const AdapterState& right);
/// The largest absolute difference of any factor.
double difference(const AdapterState& left, const AdapterState& right);

}  // namespace evenkeel
