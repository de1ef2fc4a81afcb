/// \file  Declares the interface of a federated fine-tuning method: the client half and the server half of the protocol
/// in one class.
/// The default implementation is FedIT, which averages A and B (FedAvg). A method overrides what its paper changes.
/// Objects are immutable. State is kept in ServerState, Payload and ClientView::memory, so one object serves all
/// clients.
/// Threads: several threads may call any function at once, each with its own arguments.
/// Methods are independent of the model family: they see sites, not models.
#pragma once

#include "methods/protocol.h"
#include "methods/uploads.h"

namespace evenkeel::methods {

/// Returns a setup without adapters. Its router selects the client's K_c experts and normalises gate weights by
/// `[method] gate_norm`.
LocalSetup empty_setup(const ClientView& view);

/// Checks that every token chose K_c experts, for methods that upload "<layer>.counts" and "<layer>.tokens".
/// \throws kData naming a layer without tokens, or whose counts do not sum to K_c times its tokens
void check_routing_counts(const lora::Payload& upload, const ClientProfile& client);

/// Checks that the routing counts of a round fit into int32, the dtype in which methods upload "<layer>.counts" and
/// "<layer>.tokens". A token counts at most once for an expert, so no count is above the number of tokens.
/// \throws kData naming a client with 2^31 tokens or more
void check_countable(const nn::RoutingByLayer& counts, const ClientProfile& client);

/// Interface of a federated fine-tuning method.
class FederatedMethod {
 public:
  virtual ~FederatedMethod() = default;

  // --- client half, in the order of the calls in a round ---
  /// Returns the client's adapters, the tensors to train and the router options for a round or an evaluation.
  virtual LocalSetup prepare(const lora::Payload& download, const ClientView& view) const;
  /// Returns a scalar that depends on the routing of the last micro-batch in `step`, or an undefined tensor for none.
  /// It is added to the task loss of that micro-batch, whose router_logits are in the autograd graph until its backward
  /// pass. A method that reads them sets router.records_logits in prepare().
  /// The extra loss is divided by the number of micro-batches per step, the task loss as `[train] loss_mean` says.
  virtual at::Tensor extra_loss(const StepView& step) const;
  /// Returns a scalar that depends on the trained tensors only, such as a norm of the factors, or an undefined tensor
  /// for none. Its gradient is added once per step. edit_gradients(), which is called next, gets the same `step`.
  virtual at::Tensor penalty(const StepView& step) const;
  /// Edits the gradients after the last backward pass of a step, before the optimiser runs. `step.micro_batches` is
  /// empty in two cases: no row of the step has a target, and penalty() was not called; or the step is private
  /// (train/private_steps.h), and penalty() was called.
  virtual void edit_gradients(const StepView& step) const;
  /// Edits the parameters after the optimiser step, for updates that bypass the optimiser's moments. All gradients are
  /// zero by then.
  virtual void edit_parameters(const StepView& step) const;
  /// Returns what the client sends to the server.
  /// \param counts  routing counts of each mixture layer, summed over the round; logits are undefined. Empty after
  /// private steps
  virtual lora::Payload upload(const lora::Payload& download, const LocalSetup& setup, const nn::RoutingByLayer& counts,
                               const ClientView& view) const;

  // --- server half: functions without side effects ---
  /// Checks the values of an upload beyond names, shapes and finite numbers, which fed/round/payload_check.h checks.
  /// \throws kData naming the wrong value
  virtual void check_upload(const lora::Payload& upload, const ClientProfile& client) const;
  /// Returns the state before the first round.
  virtual ServerState initialize(const ServerView& server) const;
  /// Returns the rank at which `client` would train next. HetLoRA reduces it below client.rank.
  virtual int64_t rank_of(const ServerState& state, const ClientProfile& client) const;
  /// Returns what the server sends to `client` in a round, or for an evaluation if `round` has no participants.
  /// global.base_delta of `state` is the last round's change of the base, which is added if the result lacks it.
  virtual lora::Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView& round) const;
  /// Returns the state after a round. `uploads` are in the order of round.participants. This round's change of the base
  /// goes into global.base_delta of the result; that of `state` was cleared. MethodEntry::changes_base has to be true.
  /// The result may lack sites, which are then as in the base. Server::aggregate() adds the change to
  /// common.base_change, counts the round, and rejects numbers that are not finite and factors that do not fit the
  /// model. The next round sends the change to all clients.
  virtual ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                                const Uploads& uploads) const;

  // --- both halves, for rounds in which the server gets sums alone (MethodEntry::from_sums) ---
  /// Checks the options of the method. \throws kConfig when a value needs single uploads
  virtual void check_sums() const;
  /// Returns the client's terms of the named sums that aggregate() asks for (Uploads::sum() and mean() of extras):
  /// float64, equal names and shapes for all clients, magnitudes below 2^15.
  /// \param weight  the client's p_c (RoundView::weights) among all clients that were drawn
  virtual TensorMap summands(const ClientUpdate& own, double weight) const;
  /// Returns weights for the experts of a layer in place of p_c (RoundView::weights), [E] float64 in [0, 1]; undefined:
  /// p_c. The client weights its changes of the expert stacks with them, and Uploads::change() returns the sum over
  /// clients.
  virtual at::Tensor expert_weights(const std::string& layer, const ClientUpdate& own, double weight) const;

  /// Checks that aggregation uses only the clients' summed changes of factors, to which noise is added
  /// ([privacy] unit = "client"). Named sums are then not available (Uploads::has_sum()).
  /// \throws kConfig when the value of an option needs more
  virtual void check_client_privacy() const;

  /// Returns numbers and small tensors ([L], or [E] per layer) for the run records.
  virtual TensorMap diagnostics(const ServerState& state) const;
  /// Returns the pseudo-gradients of the next round as factors A and B by site, before any scaling; empty if the method
  /// has none. `evenkeel pg-alignment` compares them with true gradients.
  virtual lora::AdapterState pseudo_gradients(const ServerState& state) const;
};

}  // namespace evenkeel::methods
