/// \file  Provides a federation that is small enough to run whole rounds in a unit test: a random two-layer model with
/// 6 experts, and four unequal clients with a few generated rows each. No two sizes are equal.
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

  methods::ServerView server() const;
  at::Tensor gradient_sum(const std::string& site, const methods::GradientSample& sample) const;
  methods::ClientView view(const methods::ClientProfile& client, int64_t round, const methods::Common& common) const;
  /// Returns the view for a method without shared state.
  methods::ClientView view(const methods::ClientProfile& client, int64_t round) const;
  lora::LoraScale scale() const { return {.alpha = 6, .rank = rank}; }
  /// Returns a round of all clients, or of the listed ones, weighted by their numbers of rows.
  methods::RoundView round(int64_t number, const std::vector<int64_t>& ids = {}) const;
  train::LocalResult train(const methods::FederatedMethod& method, const methods::ServerState& state,
                           const methods::RoundView& round, const methods::ClientProfile& client) const;
  std::vector<methods::ClientUpdate> train_all(const methods::FederatedMethod& method,
                                               const methods::ServerState& state,
                                               const methods::RoundView& round) const;
  /// Returns the method's aggregate of the uploads, with its change of the base added to the shared state.
  methods::ServerState aggregate(const methods::FederatedMethod& method, const methods::ServerState& state,
                                 const methods::RoundView& round, const methods::Uploads& uploads) const;
  /// Runs `rounds` rounds of all clients from the initial state.
  methods::ServerState run(const methods::FederatedMethod& method, int64_t rounds) const;

  std::unique_ptr<models::CausalLm> model;
  lora::Sites sites;
  std::vector<methods::ClientProfile> clients;  ///< K = 1, 2, 3, 3
  std::vector<std::vector<data::Example>> shards;
  train::LocalTraining training;
  int64_t rank = 4;
  nn::GateNorm gate_norm = nn::GateNorm::kRenormSelected;
  uint64_t seed = 11;
  std::vector<int64_t> drawn;  ///< ids of the clients that take part in the rounds of run(); empty: all
  mutable TensorMap memory;
};

/// Returns the method `name` with the keys of `toml`.
std::unique_ptr<methods::FederatedMethod> make_method(std::string_view name, const std::string& toml = "");

/// Returns the change of every weight in a state: change of the base and adapters together, [*, out, in] float64.
std::map<std::string, at::Tensor> effect(const methods::ServerState& state);

/// Returns whether all factors are equal bit for bit.
bool equal(const lora::AdapterState& left, const lora::AdapterState& right);
/// Returns the largest absolute difference of any factor.
double difference(const lora::AdapterState& left, const lora::AdapterState& right);

}  // namespace evenkeel
