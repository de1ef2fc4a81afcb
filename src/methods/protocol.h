/// \file  The nouns of the protocol: what each half of a method is given and what it hands back (methods/method.h has
/// the verbs). Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format/config_table.h"
#include "lora/payload.h"
#include "methods/profile.h"
#include "nn/compute/compute.h"
#include "nn/moe/routing.h"

namespace evenkeel {

/// Who computes a sum of gradients over training rows: one place that has all rows, or each client on its own.
enum class SampleFrom { kPooled, kClients };
constexpr auto names(SampleFrom) {
  return std::array{config::EnumName<SampleFrom>{"pooled", SampleFrom::kPooled},
                    config::EnumName<SampleFrom>{"federated", SampleFrom::kClients}};
}

/// Training rows whose gradients a method asks for.
struct GradientSample {
  int64_t rows = 0;  ///< in all, or one client's share of them rounded up, times the clients
  SampleFrom from = SampleFrom::kPooled;
  bool operator==(const GradientSample& other) const = default;

  void visit(auto& field) {  // base/format/record.h
    field("rows", rows);
    field("from", from);
  }
};

/// Gradient of the task loss with respect to the frozen weight of `site`, [*, out, in] float32, summed over `sample` on
/// the bare base model: every row is routed as in training, with the K_c of the client that owns it
/// (docs/decisions/0024-what-k-stands-for.md). \throws kConfig where there are no rows (an evaluation).
using GradientSum = std::function<at::Tensor(const std::string& site, const GradientSample& sample)>;

/// What the server half may look at besides its state.
struct ServerView {
  const Sites& sites;
  std::vector<std::string> moe_layers;  ///< routing keys
  int64_t num_experts = 0;
  int64_t max_top_k = 0;  ///< K_max, the checkpoint's own top-k
  int64_t rank = 0;       ///< the largest r_c of any client
  LoraScale scale{};
  double lr = 0;  ///< the clients' learning rate, eta
  uint64_t seed = 0;
  GradientSum gradient_sum{};
  /// What the run begins with in the place of fresh factors ([lora] init), of some sites or all; null: nothing.
  const AdapterState* start = nullptr;
  TransportDtype transport = TransportDtype::kFloat32;  ///< what a change of the base is rounded to in any case
};

/// The participants of a round, in id order, with p_c: dataset sizes normalised over them. Empty for an evaluation.
struct RoundView {
  int64_t round = 0;
  std::vector<ClientProfile> participants{};
  std::vector<double> weights{};
};

/// What everybody in a run holds alike, so that a simulation keeps it once.
struct Common {
  AdapterState fixed{};        ///< factors that are sent once and never trained (FFA-LoRA's A, Fed-SB's A and B)
  AdapterState base_change{};  ///< the sum of all base deltas so far; the round adds to it, not the method
};

struct ServerState {
  int64_t round = 0;
  Payload global{};    ///< what broadcasts are made of
  TensorMap memory{};  ///< what only the server keeps
  Common common{};
};

/// Adds a new state's base delta, as the wire carries it, to what everybody's base has gained.
void gain_base_delta(ServerState& next, TransportDtype dtype);

/// The whole effect of a state on the base model as one plain adapter (lora/algebra.h, joined): what adapter/ and
/// exports hold.
AdapterState whole_adapter(const ServerState& state);

/// Which tensors of the adapters get gradients and optimiser state.
enum class Trainable { kAB, kB, kCore };

struct LocalSetup {
  AdapterState adapters;  ///< the client's own copy, float32
  Trainable trainable = Trainable::kAB;
  RouterOptions router;
  TensorMap extra_trainables;  ///< e.g. phi; views of tensors that `router` uses
  TensorMap notes{};           ///< what the method works out once for all steps of the round
};

/// Running means a method reports for the round, e.g. "pg_share". Names are snake_case.
class Metrics {
 public:
  void add(const std::string& name, double value, double weight = 1.0) {
    auto& [sum, total] = means_[name];
    sum += value * weight;
    total += weight;
  }
  /// The same of scalars on any device, which nobody waits for: they count once read() has fetched them.
  void add(const std::string& name, const at::Tensor& value) { add_sum(name, value, {}); }
  /// Of several values: their sum, each times its weight, and the sum of the weights. \param weight  undefined: 1
  void add_sum(const std::string& name, const at::Tensor& sum, const at::Tensor& weight);
  /// Fetches, in one copy from their device, what was added as tensors, and `others`. \return the others
  std::vector<double> read(std::span<const at::Tensor> others = {});
  std::map<std::string, double> means() const;

 private:
  struct Pending {
    std::string name;
    at::Tensor sum, weight;
  };
  std::vector<Pending> pending_;
  std::map<std::string, std::pair<double, double>> means_;
};

struct ClientView {
  const ClientProfile& client;
  const Sites& sites;
  const Common& common;
  LoraScale scale;
  GateNorm gate_norm = GateNorm::kCheckpoint;  ///< `[method] gate_norm`
  int64_t round = 0;
  uint64_t seed = 0;
  TensorMap& memory;  ///< this client's own, kept across rounds and in checkpoints
};

/// One optimiser step from the inside.
struct StepView {
  const ClientView& view;
  const Payload& download;
  LocalSetup& setup;                              ///< adapters with gradients
  std::span<const RoutingByLayer> micro_batches;  ///< routing of each micro-batch of the step so far
  double lr = 0;
  Metrics& metrics;
  Engine engine = Engine::kKernels;  ///< kAten: tensors may lie on a GPU, which a step should not wait for
};

}  // namespace evenkeel
