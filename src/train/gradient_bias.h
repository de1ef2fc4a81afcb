/// \file  Compares the gradient of a model with K experts per token, g_K, with its gradient with K_max, grad F. The
/// bias of g_K is B = grad F - g_K. The corollary of the UB-SMoE paper's Theorem 4.1 predicts |B|^2 as the sum of
/// (1 - p_i)^2 |grad_i F|^2, where p_i is the share of tokens that choose expert i with K experts per token. Only
/// gradients of the experts' adapters are compared. fed/run/gradient_bias.h measures a run with it.
/// Dimension names: E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/example.h"
#include "lora/adapter.h"
#include "methods/protocol.h"
#include "models/causal_lm.h"

namespace evenkeel::train {

/// The gradients of one layer's expert adapters, and how often its experts were chosen.
struct LayerGradients {
  std::vector<at::Tensor> factors{};  ///< each [E, ...] float64, on the CPU
  at::Tensor counts_E{};              ///< int64, on the CPU: how many tokens chose the expert
  int64_t tokens = 0;                 ///< number of tokens that were routed
};

/// The gradients of all layers on some rows, by layer.
using ExpertGradientSums = std::map<std::string, LayerGradients>;

/// Computes the gradient of the mean loss of one batch of rows, times the number of its targets.
/// \param forward  the adapters and router options of the pass
/// \param sites    the sites of the run; those with experts and an adapter are read
/// \param trainable  the factors that the method trains; other factors are left out
/// \throws kConfig when no row has a target, no expert has an adapter, or `forward` has no adapters
ExpertGradientSums expert_gradients(const models::CausalLm& model, models::ForwardOptions forward,
                                    std::span<const data::Example> rows, const lora::Sites& sites,
                                    methods::Trainable trainable = methods::Trainable::kAB);
/// Adds `sign` times the gradients, counts and tokens of `other`. An empty `sum` counts as zero.
void add_to(ExpertGradientSums& sum, const ExpertGradientSums& other, int64_t sign = 1);

/// Sums over the experts of a layer, from which all measures are computed. Sums of several layers or batches add up.
struct BiasSums {
  double full = 0, sparse = 0;    ///< |grad F|^2 and |g_K|^2
  double product = 0;             ///< inner product of grad F and g_K
  double bias_active = 0;         ///< |B|^2 over experts with a token at K
  double full_idle = 0;           ///< |grad F|^2 over experts without a token at K; there g_K is 0 and this is |B|^2
  double predicted = 0;           ///< the corollary's sum
  int64_t experts = 0, idle = 0;  ///< number of experts; number of experts without a token at K
  /// Adds `sign` times each sum of `other`.
  void add(const BiasSums& other, int64_t sign = 1);
};

/// Computes the sums of one layer. Both gradients are of the same rows and factors.
/// \param full  grad F \param sparse  g_K \param scale  factor of all gradients
BiasSums bias_sums(const LayerGradients& full, const LayerGradients& sparse, double scale = 1.0);

/// The reported measures. nullopt: the denominator is zero.
struct BiasMeasures {
  std::optional<double> bias{};           ///< |B|^2 / |grad F|^2
  std::optional<double> bias_active{};    ///< the part of `bias` that is due to experts with a token at K
  std::optional<double> bias_idle{};      ///< the rest of `bias`: experts without a token at K as a share of |grad F|^2
  std::optional<double> predicted{};      ///< the corollary's |B|^2 / |grad F|^2
  std::optional<double> cosine{};         ///< cosine of grad F and g_K
  std::optional<double> cosine_active{};  ///< cosine over experts with a token at K
  std::optional<double> idle_experts{};   ///< experts without a token at K as a share of all experts
};
BiasMeasures measures_of(const BiasSums& sums);

/// A measure with its name in output.
struct BiasMeasure {
  std::string_view name;
  std::optional<double> BiasMeasures::*value;
};
inline constexpr std::array kBiasMeasures{
    BiasMeasure{"bias", &BiasMeasures::bias},
    BiasMeasure{"bias_active", &BiasMeasures::bias_active},
    BiasMeasure{"bias_idle", &BiasMeasures::bias_idle},
    BiasMeasure{"predicted", &BiasMeasures::predicted},
    BiasMeasure{"cosine", &BiasMeasures::cosine},
    BiasMeasure{"cosine_active", &BiasMeasures::cosine_active},
    BiasMeasure{"idle_experts", &BiasMeasures::idle_experts},
};

}  // namespace evenkeel::train
