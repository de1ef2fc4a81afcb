/// \file  What one client does in one round: a few optimiser steps on its own rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "methods/method.h"
#include "models/causal_lm.h"
#include "train/optimizer.h"
#include "train/residence.h"

namespace evenkeel {

/// Of one micro-batch, or of several in turn.
using ExampleRows = std::vector<const Example*>;

enum class IdleExpertUpdate {
  kZeroGrad,  ///< an idle expert has a zero gradient: AdamW still decays it and applies stale momentum (transformers'
              ///< semantics)
  kSkip,      ///< an idle expert's slices and moments stand still
};
constexpr auto names(IdleExpertUpdate) {
  return std::array{config::EnumName<IdleExpertUpdate>{"zero_grad", IdleExpertUpdate::kZeroGrad},
                    config::EnumName<IdleExpertUpdate>{"skip", IdleExpertUpdate::kSkip}};
}

/// What the loss of an optimiser step is a mean over (docs/decisions/0003-loss-as-sum-and-count.md).
enum class LossMean {
  kMicroBatch,  ///< the targets of each micro-batch; the step's loss is the mean of these means
  kStep,        ///< all targets of the step's micro-batches: each counts alike
};
constexpr auto names(LossMean) {
  return std::array{config::EnumName<LossMean>{"micro_batch", LossMean::kMicroBatch},
                    config::EnumName<LossMean>{"step", LossMean::kStep}};
}

/// The part of [train] that a client needs.
struct LocalTraining {
  double local_epochs = 0.4;  ///< Gamma: steps = max(1, round(local_epochs * |D_c| / (batch_size * accumulation)))
  int64_t batch_size = 8;     ///< sequences per micro-batch
  int64_t accumulation = 2;   ///< micro-batches per optimiser step
  LossMean loss_mean = LossMean::kMicroBatch;
  bool share_prefixes = true;   ///< pack_shared(): equal up to rounding of gradients, and faster
  int64_t merge_tokens = 2048;  ///< micro-batches of so many tokens together are one pass: equal up to rounding too
  IdleExpertUpdate idle_expert_update = IdleExpertUpdate::kZeroGrad;
  OptimizerConfig optimizer;
  Compute compute;                               ///< [model] says it, so no key here
  std::shared_ptr<const Residence> residence{};  ///< of the base; null: the processor

  void visit(auto& field) {
    field("local_epochs", local_epochs, "passes over a client's rows per round, > 0; at least one step is done");
    field("batch_size", batch_size, "sequences per micro-batch, 1 or more");
    field("accumulation", accumulation, "micro-batches per optimiser step, 1 or more");
    field("loss_mean", loss_mean,
          "what the loss is a mean over: the targets of each micro_batch, of whose means a step takes the mean, or all "
          "targets of the step");
    field("share_prefixes", share_prefixes,
          "tokens with which sequences of a micro-batch begin alike go through the model once");
    field("merge_tokens", merge_tokens,
          "micro-batches of a step that have so many tokens together go through the model at once; 0: each by itself");
    field("idle_expert_update", idle_expert_update, "experts without a token in a step: zero_grad or skip");
    field("optimizer", optimizer, "");
  }
  void resolve(const config::Table& table) const {
    table.check_above_zero("local_epochs", local_epochs);
    table.check_integer("batch_size", batch_size, 1, limits::kBatch);
    table.check_integer("accumulation", accumulation, 1, limits::kBatch);
    table.check_integer("merge_tokens", merge_tokens, 0, limits::kTokens);
  }
};

/// What a client measured in a round.
struct LocalReport {
  int64_t steps = 0;
  int64_t tokens = 0;                    ///< real tokens, those that shared a row with others included
  int64_t targets = 0;                   ///< positions with a loss
  double loss_sum = 0;                   ///< task loss summed over targets, natural log
  double first_loss = 0, last_loss = 0;  ///< mean loss per target of the first and last step
  RoutingByLayer counts;                 ///< summed over the round; logits undefined
  std::map<std::string, double> metrics;
  double seconds = 0;

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
  }
};

struct LocalResult : LocalReport {
  Payload upload;
};

/// Called after every optimiser step with (steps done, steps in all, tokens so far). May throw to interrupt.
using StepCallback = std::function<void(int64_t, int64_t, int64_t)>;

/// prepare -> Gamma steps of (forward, loss, backward, edit_gradients, AdamW, edit_parameters) -> upload.
/// Micro-batch loss: mean over its target tokens, divided by `accumulation`, or its sum divided by the targets of the
/// whole step (`loss_mean`), merged or not. The order of rows is drawn
/// from (seed, "batches", round, client). \throws kNumeric (step) when a loss is not finite.
LocalResult train_locally(const CausalLm& model, const FederatedMethod& method, const Payload& download,
                          const ClientView& view, std::span<const Example> shard, const LocalTraining& training,
                          const StepCallback& on_step = {});

/// Micro-batches, in order, as passes through the model: one joins those before it as long as they have at most
/// `merge_tokens` tokens together; one by itself may have more (docs/decisions/0059-micro-batches-in-one-pass.md).
std::vector<ExampleRows> merged(std::span<const ExampleRows> micro_batches, int64_t merge_tokens);

/// The optimiser steps of one round for a shard of `examples` rows.
int64_t local_steps(const LocalTraining& training, int64_t examples);

}  // namespace evenkeel
