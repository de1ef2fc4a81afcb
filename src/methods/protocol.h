/// \file  Defines the plain data that the two halves of a method receive and return. methods/method.h declares the
/// functions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format/config_table.h"
#include "base/system/transfers.h"
#include "lora/payload.h"
#include "methods/profile.h"
#include "nn/engines/engine_of.h"
#include "nn/moe/routing.h"

namespace evenkeel::methods {

/// Selects who computes a sum of gradients over training rows: one process that has all rows (kPooled), or each client
/// on its own rows (kClients).
enum class SampleFrom { kPooled, kClients };
constexpr auto names(SampleFrom) {
  return std::array{config::EnumName<SampleFrom>{"pooled", SampleFrom::kPooled},
                    config::EnumName<SampleFrom>{"federated", SampleFrom::kClients}};
}

/// Describes the training rows over which a method asks for a sum of gradients.
struct GradientSample {
  /// Number of rows asked for. kClients: each client draws of_one() rows, or all that it has.
  int64_t rows = 0;
  SampleFrom from = SampleFrom::kPooled;
  bool operator==(const GradientSample& other) const = default;
  /// Returns the number of rows per client, rounded up.
  int64_t of_one(int64_t clients) const { return (rows + clients - 1) / clients; }

  void visit(auto& field) {  // base/format/record.h
    field("rows", rows);
    field("from", from);
  }
};

/// Computes the gradient of the task loss with respect to the frozen weight of `site`, summed over `sample`, of the
/// base model without adapters. Every row is routed as in training, with the K_c of the client that owns it
/// (docs/decisions/0024-what-k-stands-for.md).
/// \return [*, out, in] float32
/// \throws kConfig when there are no training rows, as in an evaluation
using GradientSum = std::function<at::Tensor(const std::string& site, const GradientSample& sample)>;

/// Holds the data that the server half may read in addition to its state. Everything is borrowed.
struct ServerView {
  const lora::Sites& sites;
  std::vector<std::string> moe_layers;                    ///< routing keys in depth order
  int64_t num_experts = 0;                                ///< experts of each mixture layer; 0: dense model
  int64_t max_top_k = 0;                                  ///< K_max, the top-k of the checkpoint
  nn::ScoreFunction score = nn::ScoreFunction::kSoftmax;  ///< score function of the checkpoint's routers
  /// True: a norm follows the experts, so scaling their output has no effect.
  bool norm_behind_experts = false;
  int64_t rank = 0;  ///< the largest r_c of any client
  lora::LoraScale scale{};
  double lr = 0;  ///< learning rate eta of the clients
  uint64_t seed = 0;
  GradientSum gradient_sum{};
  /// Adapter that replaces fresh factors at some or all sites ([lora] init); null: none.
  const lora::AdapterState* start = nullptr;
  /// Dtype to which a change of the base is rounded.
  lora::TransportDtype transport = lora::TransportDtype::kFloat32;
};

/// Lists the participants of a round by ascending id, with their weights p_c: dataset sizes divided by their sum, or
/// equal values if `equal_weights` is true. Both lists are empty for an evaluation.
struct RoundView {
  int64_t round = 0;  ///< 0 is the first
  std::vector<ClientProfile> participants{};
  std::vector<double> weights{};
  /// Mean of K_c over all clients that could have been drawn, weighted as the participants are.
  double mean_top_k_of_all = 0;
  bool equal_weights = false;  ///< true: all p_c are equal, whatever the sizes
};

/// Holds what is equal for all clients of a run, so that a simulation stores it once.
struct Common {
  lora::AdapterState fixed{};  ///< factors that are sent once and never trained (A of FFA-LoRA, A and B of Fed-SB)
  lora::AdapterState base_change{};  ///< sum of all base deltas so far; Server::aggregate() updates it
};

/// State of the server between rounds. It is stored in checkpoints.
struct ServerState {
  int64_t round = 0;       ///< number of rounds that are done
  lora::Payload global{};  ///< data that broadcasts are built from
  TensorMap memory{};      ///< data that stays on the server
  Common common{};
  /// Sites that the state leaves as they are in the base: it has no adapter and no change of the base for them.
  /// Server::aggregate() sets the names, so that a stored state shows that no site is missing.
  std::set<std::string> unadapted{};
};

/// Rounds the base delta of a new state to `dtype` and adds it to common.base_change. Deltas of rank 0, which have no
/// effect, are removed. \throws kShape naming a site whose delta lacks A or B
void add_base_delta(ServerState& next, lora::TransportDtype dtype);

/// Returns the effect of a state on the base model as one adapter (joined() of lora/algebra.h). Adapter folders and
/// exports contain this adapter.
lora::AdapterState whole_adapter(const ServerState& state);

/// Selects the factors that receive gradients and optimiser state: A and B, B only, or the core between them.
enum class Trainable { kAB, kB, kCore };

/// Asks for a second pass over the rows of each step with fewer experts per token K', drawn per step from the powers of
/// two below the client's K_c. Its logits are trained towards the logits of the pass with K_c (K-dropout with
/// self-distillation). The loss of each target with logits z is weight temperature^2 KL(softmax(z(K_c) / temperature)
/// || softmax(z(K') / temperature)), with the same mean as the task loss. z(K_c) has no gradient.
struct SelfDistillation {
  double weight = 0;  ///< 0: no such pass
  double temperature = 1;
};

/// Describes what a client trains in a round.
struct LocalSetup {
  lora::AdapterState adapters;  ///< the client's own copy, float32
  Trainable trainable = Trainable::kAB;
  nn::RouterOptions router;
  /// Further trained tensors, such as UB-SMoE's router offset phi; they share memory with tensors of `router`.
  TensorMap extra_trainables;
  TensorMap notes{};  ///< values that the method computes once and reuses in all steps of the round
  /// Experts per token of a second forward and backward pass over the rows of each step, whose gradients a step gets as
  /// StepView::reference. It may be above the client's K_c, so it is for studies only. 0: no such pass.
  int64_t reference_top_k = 0;
  SelfDistillation distillation{};  ///< no such pass for a client with K_c = 1
};

/// Collects running means that a method reports for a round, such as "pg_share". Names are snake_case.
class Metrics {
 public:
  /// Adds one value to the mean of `name`.
  void add(const std::string& name, double value, double weight = 1.0) {
    auto& [sum, total] = means_[name];
    sum += value * weight;
    total += weight;
  }
  /// Adds a scalar tensor on any device without synchronising. means() includes it after the next read(), or the next
  /// begin_read() and its end_read().
  void add(const std::string& name, const at::Tensor& value) { add_sum(name, value, {}); }
  /// Adds a weighted sum of several values and the sum of their weights, both scalar tensors.
  /// \param weight  undefined: the weight is 1
  void add_sum(const std::string& name, const at::Tensor& sum, const at::Tensor& weight);
  /// Begins to copy all pending tensors, and `others`, to the CPU in one transfer. REQUIRES that no transfer runs.
  void begin_read(std::span<const at::Tensor> others);
  /// Waits for the transfer that has begun, but not for later work of the device.
  /// \return the values of `others`; empty if no transfer has begun
  std::vector<double> end_read();
  /// Calls begin_read() and end_read().
  std::vector<double> read(std::span<const at::Tensor> others = {}) {
    begin_read(others);
    return end_read();
  }
  /// Returns the weighted mean of each name. Names with a total weight of 0 are omitted.
  std::map<std::string, double> means() const;

 private:
  struct Pending {
    std::string name;
    at::Tensor sum, weight;
  };
  struct Reading {
    std::vector<Pending> pending{};
    size_t others = 0;
    std::optional<Download> values{};  // float64, one tensor
  };
  std::vector<Pending> pending_;
  Reading reading_;
  std::map<std::string, std::pair<double, double>> means_;
};

/// Holds the data that the client half may read, and the client's memory. Everything is borrowed.
struct ClientView {
  const ClientProfile& client;
  const lora::Sites& sites;
  const Common& common;
  lora::LoraScale scale;
  nn::GateNorm gate_norm = nn::GateNorm::kCheckpoint;  ///< value of `[method] gate_norm`
  int64_t round = 0;                                   ///< 0 is the first
  uint64_t seed = 0;
  TensorMap& memory;  ///< memory of this client, kept across rounds and in checkpoints
};

/// Holds one optimiser step as the method sees it. Everything is borrowed.
struct StepView {
  const ClientView& view;
  const lora::Payload& download;
  LocalSetup& setup;                                  ///< adapters with their gradients
  std::span<const nn::RoutingByLayer> micro_batches;  ///< routing of each micro-batch of the step so far
  double lr = 0;
  Metrics& metrics;
  /// Operations on the step's tensors. The tensors may be on a GPU; reading their values would wait for it.
  const nn::StepArithmetic& arithmetic = nn::engine_of(nn::EngineKind::kKernels).step();
  /// Gradients of A and B by site with LocalSetup::reference_top_k experts per token; null without that pass.
  const lora::AdapterState* reference = nullptr;
};

}  // namespace evenkeel::methods
