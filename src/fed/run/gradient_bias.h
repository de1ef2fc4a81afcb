/// \file  Measures the bias of gradients with fewer experts per token in a run (train/gradient_bias.h), on the last
/// committed state and on test rows. K belongs to a budget in `evaluate.budgets`, and K_max to budget 1. Two gradients
/// are measured: of the loss over all rows, as the expectation in the paper's Theorem 4.1, and of single batches of
/// `train.batch_size` rows, as an optimiser step computes it. The experts without a token in a batch are the experts
/// that a pseudo-gradient of ub-smoe can reach.
#pragma once

#include <string>
#include <vector>

#include "fed/run/measured_run.h"
#include "train/gradient_bias.h"

namespace evenkeel::fed {

/// Selects the rows of one gradient.
enum class GradientOf {
  kAllRows,  ///< all rows together
  kBatch,    ///< one batch; sums of the measures are over all batches
};
constexpr auto names(GradientOf) {
  return std::array{config::EnumName<GradientOf>{"all_rows", GradientOf::kAllRows},
                    config::EnumName<GradientOf>{"batch", GradientOf::kBatch}};
}

/// The bias in one layer, the median of each measure over the layers ("median"), or the bias in all layers with their
/// tensors concatenated ("all").
struct GradientBias {
  GradientOf of = GradientOf::kAllRows;
  std::string layer{};
  int64_t top_k = 0;
  train::BiasMeasures value{};
  /// `value` without one block of batches, for each block. The sizes of blocks differ by at most one batch. Empty if
  /// there is only one batch.
  std::vector<train::BiasMeasures> left_out{};
};

/// The largest number of blocks of batches.
inline constexpr int64_t kRowBlocks = 20;

/// Computes the bias by kind of gradient, layer (then "median" and "all") and K, ascending.
/// Cost: two passes over all rows with gradients for every K. Memory: the experts' factors in float64, three times for
/// every K.
/// \throws kConfig when the model is dense, lora.targets has no linear of the experts, or a batch has no target
std::vector<GradientBias> gradient_bias(const Experiment& experiment, const methods::ServerState& state,
                                        std::span<const data::Example> rows);

/// Computes the bias for the last committed round of a run folder. \throws as open_measured_run()
std::vector<GradientBias> run_gradient_bias(const MeasuredRunOptions& options);

}  // namespace evenkeel::fed
