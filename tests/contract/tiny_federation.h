/// \file  A federation that is small enough to run whole rounds in a unit test: a random two-layer model with 6
/// experts, and four unequal clients with a few generated rows each. No two sizes are equal.
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
  /// Returns the view for a method without shared state.
  ClientView view(const ClientProfile& client, int64_t round) const;
  LoraScale scale() const { return {.alpha = 6, .rank = rank}; }
  /// Returns a round of all clients, or of the listed ones, weighted by their numbers of rows.
  RoundView round(int64_t number, const std::vector<int64_t>& ids = {}) const;
  LocalResult train(const FederatedMethod& method, const ServerState& state, const RoundView& round,
                    const ClientProfile& client) const;
  std::vector<ClientUpdate> train_all(const FederatedMethod& method, const ServerState& state,
                                      const RoundView& round) const;
  /// Returns the method's aggregate of the uploads, with its change of the base added to the shared state.
  ServerState aggregate(const FederatedMethod& method, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const;
  /// Runs `rounds` rounds of all clients from the initial state.
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

/// Returns the method `name` with the keys of `toml`.
std::unique_ptr<FederatedMethod> make_method(std::string_view name, const std::string& toml = "");

/// Returns the change of every weight in a state: change of the base and adapters together, [*, out, in] float64.
std::map<std::string, at::Tensor> effect(const ServerState& state);

/// Returns whether all factors are equal bit for bit.
bool equal(const AdapterState& left, const AdapterState& right);
/// Returns the largest absolute difference of any factor.
double difference(const AdapterState& left, const AdapterState& right);

}  // namespace evenkeel
