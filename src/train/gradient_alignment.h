/// \file  Compares gradients of experts with the pseudo-gradients that replace them. It computes cosines over experts
/// that no token reached, and the same cosines after the experts were permuted. fed/run/pg_alignment.h measures a run
/// with it.
/// Dimension names: E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "lora/adapter.h"
#include "models/causal_lm.h"

namespace evenkeel::train {

/// Cosines with the pseudo-gradients of other experts, as a baseline. The pseudo-gradients of the compared experts are
/// permuted kShuffles times so that no expert keeps its own.
struct ShuffledCosine {
  static constexpr int64_t kShuffles = 100;
  double mean = 0, least = 0, most = 0;  ///< mean, minimum and maximum of the cosines of all permutations
};

/// Counts and cosine of one layer, or of all layers with their tensors concatenated.
struct GradientAlignment {
  std::string layer{};
  int64_t idle = 0;      ///< number of experts without a token
  int64_t compared = 0;  ///< number of idle experts with a gradient other than 0
  int64_t zero = 0;      ///< number of compared experts with a zero pseudo-gradient
  /// nullopt if the compared gradients or pseudo-gradients are all zero. Above 0: to first order, a step against the
  /// pseudo-gradients lowers the loss.
  std::optional<double> cosine{};
  /// nullopt if there is no cosine or fewer than two experts are compared. In the entry of all layers, only layers with
  /// two or more compared experts count.
  std::optional<ShuffledCosine> shuffled{};
};

/// The tensors of one layer that are compared.
struct ExpertGradients {
  std::string layer;
  at::Tensor idle_E;                                      ///< bool: experts without a token
  std::vector<at::Tensor> gradients, pseudo_gradients{};  ///< each [E, ...] on the CPU; lists of equal length
};

/// Computes the alignment of each layer and, as the last entry "all", of all layers together. Inner products are
/// computed in float64.
/// \param layers  one or more, each with at least one tensor
/// \param seed    seed of the permutations
std::vector<GradientAlignment> gradient_alignment(std::span<const ExpertGradients> layers, uint64_t seed);

/// Returns, for each MoE layer, the experts that get no token of any row.
/// \param forward  the adapters and router options of the pass
/// \param batch_size  rows per batch
/// \return layer -> [E] bool, on the CPU
TensorMap idle_experts(const models::CausalLm& model, models::ForwardOptions forward,
                       std::span<const data::Example> rows, int64_t batch_size);

/// Returns copies of the adapters of `forward` with gradients of A, B and core. Each batch adds the gradient of its
/// loss divided by its number of targets (tokens that the loss counts).
/// \param batch_size  rows per batch
/// \throws kConfig when no row has a target, or `forward` has no adapters (after a round of FLoRA or FLoRIST)
lora::AdapterState with_loss_gradients(const models::CausalLm& model, models::ForwardOptions forward,
                                       std::span<const data::Example> rows, int64_t batch_size);

}  // namespace evenkeel::train
