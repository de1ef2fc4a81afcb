/// \file  Trains one client for one round: a few optimiser steps on its own rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "methods/method.h"
#include "models/causal_lm.h"
#include "train/optimizer.h"
#include "train/private_steps.h"
#include "train/residence.h"
#include "train/step_graphs.h"

namespace evenkeel::train {

/// Rows of one micro-batch, or of several consecutive ones.
using ExampleRows = std::vector<const data::Example*>;

/// Selects what a step does to an expert that no token chose.
enum class IdleExpertUpdate {
  kZeroGrad,  ///< zero gradient: the optimiser still applies decay and momentum, as transformers does
  kSkip,      ///< the expert's factors and moments do not change
};
constexpr auto names(IdleExpertUpdate) {
  return std::array{config::EnumName<IdleExpertUpdate>{"zero_grad", IdleExpertUpdate::kZeroGrad},
                    config::EnumName<IdleExpertUpdate>{"skip", IdleExpertUpdate::kSkip}};
}

/// Selects the mean that defines the loss of an optimiser step (docs/decisions/0003-loss-as-sum-and-count.md).
enum class LossMean {
  kMicroBatch,  ///< mean over micro-batches of the mean over each micro-batch's targets
  kStep,        ///< mean over all targets of the step
};
constexpr auto names(LossMean) {
  return std::array{config::EnumName<LossMean>{"micro_batch", LossMean::kMicroBatch},
                    config::EnumName<LossMean>{"step", LossMean::kStep}};
}

/// Options of a client's training: the config section [train].
struct LocalTraining {
  /// Passes over a client's rows per round (Gamma of UB-SMoE). The number of steps is max(1, round(local_epochs * rows
  /// / (batch_size * accumulation))).
  double local_epochs = 0.4;
  int64_t batch_size = 8;    ///< sequences per micro-batch
  int64_t accumulation = 2;  ///< micro-batches per optimiser step
  LossMean loss_mean = LossMean::kMicroBatch;
  /// True: common prefixes of sequences are computed once (pack_shared()). Gradients are equal up to rounding.
  bool share_prefixes = true;
  /// Consecutive micro-batches run in one pass if they have at most this many tokens. Results are equal up to rounding.
  int64_t merge_tokens = 2048;
  IdleExpertUpdate idle_expert_update = IdleExpertUpdate::kZeroGrad;
  double max_grad_norm = 0;
  OptimizerConfig optimizer;
  nn::Compute compute;                           ///< set by [model], so it has no key here
  std::shared_ptr<const Residence> residence{};  ///< shared tensors on the base's device; null: the base is on the CPU
  /// Passes are padded, recorded as CUDA graphs and replayed; null: they are not. REQUIRES `residence`.
  std::shared_ptr<StepGraphs> graphs{};
  /// Steps with privacy of single rows (train/private_steps.h); null: steps without. Set for one round, so it has no
  /// key.
  std::shared_ptr<const PrivateSteps> privacy{};

  /// Returns the number of sequences of an optimiser step.
  int64_t rows_of_step() const { return batch_size * accumulation; }

  void visit(auto& field) {
    field("local_epochs", local_epochs, "passes over a client's rows per round, > 0; at least one step is taken");
    field("batch_size", batch_size, "sequences per micro-batch, 1 or more");
    field("accumulation", accumulation, "micro-batches per optimiser step, 1 or more");
    field("loss_mean", loss_mean,
          "mean of the loss: micro_batch (over the targets of each micro-batch, then over micro-batches) or step (over "
          "all targets of the step)");
    field("share_prefixes", share_prefixes,
          "compute a token prefix that sequences of a micro-batch have in common only once");
    field("merge_tokens", merge_tokens,
          "compute micro-batches of a step together if they have up to this many tokens in sum; 0: each alone");
    field("idle_expert_update", idle_expert_update,
          "update of experts without a token in a step: zero_grad (as with a zero gradient) or skip (none)");
    field("max_grad_norm", max_grad_norm,
          "limit of the gradient norm over all trained factors, applied after the method's edits; 0: no limit");
    field("optimizer", optimizer, "");
  }
  void resolve(const config::Table& table) const {
    table.check_above_zero("local_epochs", local_epochs);
    table.check_integer("batch_size", batch_size, 1, limits::kBatch);
    table.check_integer("accumulation", accumulation, 1, limits::kBatch);
    table.check_integer("merge_tokens", merge_tokens, 0, limits::kTokens);
    table.check_from_zero("max_grad_norm", max_grad_norm);
  }
};

/// Statistics of a client's round.
struct LocalReport {
  int64_t steps = 0;
  int64_t tokens = 0;                     ///< tokens without padding; tokens of shared prefixes count in each sequence
  int64_t targets = 0;                    ///< positions with a loss
  double loss_sum = 0;                    ///< sum of the task loss over targets, natural log
  double first_loss = 0, last_loss = 0;   ///< mean loss per target in the first and last step
  nn::RoutingByLayer counts;              ///< routing counts summed over the round; logits are undefined
  std::map<std::string, double> metrics;  ///< means over the round of the method's metrics and of distillation_kl
  double seconds = 0;
  double step_seconds = 0;                 ///< part of `seconds` in optimiser steps
  std::optional<double> move_seconds;      ///< part of `seconds` in copies to the device and back; nullopt on the CPU
  std::optional<PrivateReport> privacy{};  ///< set after private steps

  /// Returns true if no field measures the client's rows. Steps, times and `privacy` are not looked at.
  bool measures_no_rows() const;

  void visit(auto& field) {  // base/format/record.h
    field("steps", steps);
    field("tokens", tokens);
    field("targets", targets);
    field("loss_sum", loss_sum);
    field("first_loss", first_loss);
    field("last_loss", last_loss);
    field("counts", counts);
    field("metrics", metrics);
    field("seconds", seconds);
    field("step_seconds", step_seconds);
    field("move_seconds", move_seconds);
    field("privacy", privacy);
  }
};

/// Result of a client's round: the statistics and the upload.
struct LocalResult : LocalReport {
  lora::Payload upload;
};

/// Called after every optimiser step with (steps done, total steps, tokens so far). It may throw to end the training.
using StepCallback = std::function<void(int64_t, int64_t, int64_t)>;

/// The work of one client in one round. All members are borrowed.
struct LocalWork {
  const lora::Payload& download;  ///< the broadcast
  const methods::ClientView& view;
  std::span<const data::Example> rows;  ///< the client's training rows
};

/// Trains one client for one round: prepare(), then for each step forward, loss, backward, penalty(), edit_gradients(),
/// the limit of the gradient's norm, the optimiser and edit_parameters(), then upload().
/// A micro-batch contributes its mean loss divided by `accumulation`, or its summed loss divided by the targets of the
/// whole step (`loss_mean`). This holds for merged micro-batches too. Micro-batches without a target are left out. The
/// order of rows is drawn from (seed, "batches", round, client).
/// With `privacy`, a step runs its rows one by one and adds noise (train/private_steps.h). The method then gets no
/// routing. The number of steps is the same as without privacy. A withheld report holds only steps and privacy.
/// \throws kNumeric naming the step when a loss is not finite; kData when there are no rows; kConfig when the download
/// has a higher rank than the client, and for IdleExpertUpdate::kSkip with `privacy`
LocalResult train_locally(const models::CausalLm& model, const methods::FederatedMethod& method, const LocalWork& work,
                          const LocalTraining& training, const StepCallback& on_step = {});

/// Groups micro-batches into forward passes, in order. A pass has at most `merge_tokens` tokens, unless a single
/// micro-batch has more (docs/decisions/0059-micro-batches-in-one-pass.md).
/// \return the rows of each pass
std::vector<ExampleRows> merged(std::span<const ExampleRows> micro_batches, int64_t merge_tokens);

/// Returns the number of optimiser steps of one round for a client with `examples` rows.
int64_t local_steps(const LocalTraining& training, int64_t examples);
/// Returns the number of sequences in the optimiser steps of one round. A row counts each time that it is trained.
int64_t rows_of_round(const LocalTraining& training, int64_t examples);

}  // namespace evenkeel::train
