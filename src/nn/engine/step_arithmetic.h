/// \file  Declares the tensor operations of an optimiser step, which each engine implements: norms and sums over
/// experts, gradient clipping, AdamW. Tensors are float32 or float64, on one device.
/// Dimension names: L layers, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <limits>
#include <span>
#include <vector>

namespace evenkeel::nn {

/// Terms for the experts of a layer: terms[i] is added to targets[i], [E, ...] each.
struct ExpertTerms {
  std::vector<at::Tensor> terms, targets;
};

/// How the terms of each expert are scaled: share * clamp(scale * term, -bound, bound).
struct TermScales {
  at::Tensor share_LE, scale_LE{};  ///< float64
  double bound = std::numeric_limits<double>::infinity();
};

/// Parameters, with the moments and step counts that AdamW keeps of them, in the same order.
struct AdamWState {
  std::vector<at::Tensor> parameters{}, exp_avgs{}, exp_avg_sqs{};
  std::vector<at::Tensor> steps{};  ///< float32: a scalar, or [E] for a stack whose slices have counts of their own
};

/// The settings of one step of AdamW.
struct AdamWStep {
  double lr = 0;
  std::array<double, 2> betas{};
  double eps = 0, weight_decay = 0;
  /// For each parameter, a bool [E]: which slices [i] are updated. Undefined, or beyond the end of the list: all.
  const std::vector<at::Tensor>& active;
  bool zero_gradients = false;  ///< true: the gradients are zero afterwards, also those of other slices
};

/// Makes the gradient of a parameter contiguous and returns it. REQUIRES a gradient.
at::Tensor contiguous_gradient(const at::Tensor& parameter);
/// Returns AdamWStep::active of one parameter, or an undefined tensor. If it is defined, the step count of the
/// parameter becomes [E] from then on, one count per slice.
at::Tensor active_slices(AdamWState& state, const AdamWStep& step, size_t parameter);

/// The tensor operations of an optimiser step. It has no state. Threads: any.
class StepArithmetic {
 public:
  StepArithmetic() = default;
  StepArithmetic(const StepArithmetic&) = delete;
  StepArithmetic& operator=(const StepArithmetic&) = delete;
  virtual ~StepArithmetic() = default;

  /// Returns the norm of each expert over all its tensors [E, ...]. \return [E] float64
  virtual at::Tensor expert_norms(std::span<const at::Tensor> tensors) const = 0;
  /// Adds `factor` times the scaled terms to the targets, in place. `layers[l]` uses row l of `scales`.
  /// \param norm_LE  norms of the terms, as expert_norms() returns them
  /// \return [L, E] float64, norms of the scaled terms over an expert's tensors, without `factor`
  virtual at::Tensor add_terms(std::span<const ExpertTerms> layers, const TermScales& scales, const at::Tensor& norm_LE,
                               double factor) const = 0;
  /// Scales gradients in place so that their total norm is at most `limit`.
  /// \return scalar float64, 1 if the norm was above the limit, else 0
  virtual at::Tensor limit_norm(std::vector<at::Tensor> gradients, double limit) const = 0;
  /// Scales gradients in place as torch.nn.utils.clip_grad_norm_ does, by max_norm / (norm + 1e-6) if that is below 1.
  virtual void clip_norm(std::vector<at::Tensor> gradients, double max_norm) const = 0;
  /// Takes a step of AdamW for all parameters with a gradient (train/optimizer.h).
  virtual void adamw(AdamWState& state, const AdamWStep& step) const = 0;
};

}  // namespace evenkeel::nn
