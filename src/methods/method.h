/// \file  The contract of a federated fine-tuning method: both halves of the protocol, one class, one file.
/// The defaults are FedIT (FedAvg on A and B); a method overrides what its paper changes. Objects are immutable: state
/// lives in ServerState, Payload and ClientView::memory, so one object serves all clients, also side by side (every
/// function may be called from several threads at once, each with arguments of its own). A method never names a model.
#pragma once

#include "methods/protocol.h"
#include "methods/uploads.h"

namespace evenkeel {

/// No adapters yet, and a router as the run says: the client's K_c experts, `[method] gate_norm`.
LocalSetup empty_setup(const ClientView& view);

/// For methods that upload "<layer>.counts" and "<layer>.tokens": every token chose K_c experts. \throws kData naming
/// the layer where the counts add up to anything else.
void check_routing_counts(const Payload& upload, const ClientProfile& client);

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
  /// After the optimiser step: for updates that bypass its moments. Gradients are zero again.
  virtual void edit_parameters(const StepView& step) const;
  /// \param counts  summed routing counts of the round per MoE layer; logits undefined.
  virtual Payload upload(const Payload& download, const LocalSetup& setup, const RoutingByLayer& counts,
                         const ClientView& view) const;

  // --- server half: pure functions of their arguments ---
  /// Whether an upload whose names, shapes and numbers are in order (fed/round/payload_check.h) also makes sense.
  /// \throws kData saying what does not.
  virtual void check_upload(const Payload& upload, const ClientProfile& client) const;
  virtual ServerState initialize(const ServerView& server) const;
  virtual Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView& round) const;
  /// `uploads` are in the order of round.participants. A change of the base goes into the result's global.base_delta;
  /// the round adds it to common.base_change and sends it to everybody, counts rounds and refuses what is not finite.
  virtual ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                                const Uploads& uploads) const;
  /// Numbers and small tensors ([L], [E] per layer) for the run records.
  virtual TensorMap diagnostics(const ServerState& state) const;
  /// What idle experts are moved by in the next round, as factors A and B of their sites, before any scaling; empty
  /// where the method has nothing of the kind. `evenkeel pg-alignment` compares it with true gradients.
  virtual AdapterState pseudo_gradients(const ServerState& state) const;
};

}  // namespace evenkeel
