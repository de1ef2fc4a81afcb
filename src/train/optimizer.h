/// \file  Declares the interface of optimisers, and AdamW.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/format/safetensors.h"
#include "nn/compute/compute.h"
#include "nn/engine/step_arithmetic.h"
#include "train/optimizer_config.h"

namespace evenkeel::train {

/// Selects what a step leaves in the gradients.
enum class Gradients {
  kKept,
  kZeroed,  ///< set to zero by the step
};

/// Updates parameters from their gradients. The parameters are contiguous, in float32 or float64, and all on one
/// device. They are shared, not copied. A parameter without a gradient is not changed.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Takes one step with learning rate `lr`; -1 uses the config's rate.
  virtual void step(double lr = -1, Gradients gradients = Gradients::kKept) = 0;
  /// Updates only the slices [i] of stacked parameters for which active[p][i] is true (`idle_expert_update = "skip"`).
  /// Each slice has its own step count. The learning rate is OptimizerConfig::lr, which the caller sets to the round's.
  /// kZeroed also zeroes the gradients of the inactive slices.
  /// \param active  one [E] bool tensor per parameter; undefined: the whole parameter is updated
  virtual void step_active(const std::vector<at::Tensor>& active, Gradients gradients = Gradients::kKept) = 0;

  /// Returns the state for checkpoints. The tensors are not copied.
  virtual TensorMap state() const = 0;
  /// Restores what state() returned. \throws kCheckpoint when a tensor is missing or has another size
  virtual void load_state(const TensorMap& state) = 0;
};

/// Returns a copy of an optimiser's stored tensor with the type and device of `like`.
/// \throws kCheckpoint when it is missing, or has another number of values than `like` and is not a step count
at::Tensor stored_tensor(const TensorMap& state, const std::string& name, const at::Tensor& like);

/// AdamW with decoupled decay first, bias-corrected moments, and eps outside the root. It equals torch.optim.AdamW step
/// for step. Source: Loshchilov and Hutter 2019.
class AdamW : public Optimizer {
 public:
  /// \param engine  computes the steps; engines are equal up to rounding
  AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config,
        nn::EngineKind engine = nn::EngineKind::kKernels);

  void step(double lr = -1, Gradients gradients = Gradients::kKept) override;
  void step_active(const std::vector<at::Tensor>& active, Gradients gradients = Gradients::kKept) override;
  /// Returns moments and step counts: `exp_avg.<i>`, `exp_avg_sq.<i>`, `step.<i>`.
  TensorMap state() const override;
  void load_state(const TensorMap& state) override;

 private:
  void update(const std::vector<at::Tensor>& active, double lr, Gradients gradients);

  OptimizerConfig config_;
  const nn::StepArithmetic& arithmetic_;
  nn::AdamWState state_;
};

}  // namespace evenkeel::train
