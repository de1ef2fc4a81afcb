/// \file  The contract of a federated fine-tuning method: both halves of the protocol, one class, one file.
/// The defaults are FedIT (FedAvg on A and B); a method overrides what its paper changes. Objects are immutable: state
/// lives in ServerState, Payload and ClientView::memory. A method never names a model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "lora/payload.h"
#include "methods/profile.h"
#include "methods/uploads.h"
#include "nn/routing.h"

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
  GateNorm gate_norm = GateNorm::kCheckpoint;

  void visit(auto& field) {  // base/record.h
    field("rows", rows);
    field("from", from);
    field("gate_norm", gate_norm);
  }
};

/// Gradient of the task loss with respect to the frozen weight of `site`, [*, out, in] float32, summed over `sample` on
/// the bare base model: every row is routed as in training, with the K_c of the client that owns it
/// (docs/decisions/0024-what-k-stands-for.md). \throws kConfig where there are no rows (an evaluation).
using GradientSum = std::function<at::Tensor(const std::string& site, const GradientSample& sample)>;

struct ServerState;
/// Adds a new state's base delta, as the wire carries it, to what everybody's base has gained.
void gain_base_delta(ServerState& next, TransportDtype dtype);

/// The whole effect of a state on the base model as one plain adapter (lora/algebra.h, joined): what adapter/ and
/// exports hold.
AdapterState whole_adapter(const ServerState& state);

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

/// Which tensors of the adapters get gradients and optimiser state.
enum class Trainable { kAB, kB, kCore };

struct LocalSetup {
  AdapterState adapters;  ///< the client's own copy, float32
  Trainable trainable = Trainable::kAB;
  RouterOptions router;
  TensorMap extra_trainables;  ///< e.g. phi; views of tensors that `router` uses
};

/// Running means a method reports for the round, e.g. "pg_share". Names are snake_case.
class Metrics {
 public:
  void add(const std::string& name, double value, double weight = 1.0) {
    auto& [sum, total] = means_[name];
    sum += value * weight;
    total += weight;
  }
  std::map<std::string, double> means() const;

 private:
  std::map<std::string, std::pair<double, double>> means_;
};

struct ClientView {
  const ClientProfile& client;
  const Sites& sites;
  const Common& common;
  LoraScale scale;
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
};

class FederatedMethod {
 public:
  virtual ~FederatedMethod() = default;

  // --- client half, in the order the round calls it ---
  /// Adapters, what trains, and router options for this round (or this evaluation).
  virtual LocalSetup prepare(const Payload& download, const ClientView& view) const;
  /// Added to the task loss of every micro-batch, for the latest one in `step` (its router_logits are in the graph
  /// until its backward; both losses are divided by the accumulation). Undefined: none.
  virtual at::Tensor extra_loss(const StepView& step) const;
  /// After the last backward of a step, before the optimiser. `step.micro_batches` is empty when no row of the step had
  /// a target.
  virtual void edit_gradients(const StepView& step) const;
  /// After the optimiser step: for updates that bypass its moments. Gradients still stand.
  virtual void edit_parameters(const StepView& step) const;
  /// \param counts  summed routing counts of the round per MoE layer; logits undefined.
  virtual Payload upload(const Payload& download, const LocalSetup& setup, const RoutingByLayer& counts,
                         const ClientView& view) const;

  // --- server half: pure functions of their arguments ---
  virtual ServerState initialize(const ServerView& server) const;
  virtual Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView& round) const;
  /// `uploads` are in the order of round.participants. A change of the base goes into the result's global.base_delta;
  /// the round adds it to common.base_change and sends it to everybody. \throws kNumeric when the result is not finite.
  virtual ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                                const Uploads& uploads) const;
  /// Numbers and small tensors ([L], [E] per layer) for the run records.
  virtual TensorMap diagnostics(const ServerState& state) const;
};

/// What makes clients unequal under a method, and so what a budget beta means.
enum class MethodFamily {
  kSparsity,     ///< K_c experts per token, equal ranks
  kRank,         ///< rank r_c, all of the checkpoint's K experts
  kHomogeneous,  ///< made for equal clients; a budget gives K_c as above
};

/// A method's row in the table.
struct MethodEntry {
  std::string_view name;   ///< as in configs: "ub-smoe"
  std::string_view title;  ///< "UB-SMoE"
  std::string_view paper;  ///< one-line citation
  MethodFamily family;
  bool exact;                 ///< the aggregate equals sum_c p_c delta W_c
  bool needs_experts;         ///< refuses a dense model
  bool changes_base = false;  ///< hands over base deltas: factors beside every weight, higher by each round's ranks
  bool needs_individuals = false;  ///< aggregates from uploads one by one; sums over clients are not enough
  /// Reads the method's own table strictly, checks values, makes the method. An empty table gives the defaults.
  std::unique_ptr<FederatedMethod> (*make)(const config::Table& table) = nullptr;
  /// Writes the resolved keys of `table` into the resolved config.
  void (*write)(const config::Table& table, config::Writer& writer) = nullptr;
};

/// The row of `Method`, whose own keys are the fields of `Config` (base/config.h; its resolve() checks the values).
/// \param row  what the method says of itself, without make and write
template <typename Method, typename Config>
MethodEntry method_entry(MethodEntry row) {
  row.make = [](const config::Table& table) -> std::unique_ptr<FederatedMethod> {
    return std::make_unique<Method>(config::read<Config>(table));
  };
  row.write = [](const config::Table& table, config::Writer& writer) { config::read<Config>(table).visit(writer); };
  return row;
}

/// What every method says of its key `gate_norm` (R5).
inline constexpr std::string_view kGateNormHelp =
    "weights of the selected experts: as the checkpoint (olmoe_native), or renorm_selected";

std::span<const MethodEntry> methods();
/// Adds a row for a method of another program (docs/tutorial-new-method.md): the first thing its main() does, because
/// references to rows do not survive it. \throws kConfig when the name is taken, kInternal for a row that makes
/// nothing.
void add_method(const MethodEntry& entry);
/// \throws kConfig listing the known names.
const MethodEntry& find_method(std::string_view name);

}  // namespace evenkeel
