/// \file  AdamW over stacked tensors in one fused pass, and its schedule for pre-training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/format/safetensors.h"
#include "nn/compute/compute.h"
#include "train/optimizer_config.h"

namespace evenkeel {

/// What becomes of the gradients in a step.
enum class Gradients {
  kKept,
  kZeroed,  ///< in the same pass, for the next step's sums
};

/// AdamW (Loshchilov and Hutter 2019): decoupled decay first, bias-corrected moments, eps outside the root. Equal to
/// torch.optim.AdamW step for step. A parameter whose gradient is undefined is left alone.
class AdamW {
 public:
  /// Parameters are contiguous, float32 or float64, all on one device. \param engine  kAten: on any device, equal up to
  /// rounding, and no step waits for it
  AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config, Engine engine = Engine::kKernels);

  /// One step with `lr` (default: the config's).
  void step(double lr = -1, Gradients gradients = Gradients::kKept);
  /// Updates only the slices [i] of stacked parameters for which active[p][i] is true, each slice with its own step
  /// count
  /// (`idle_expert_update = "skip"`). active[p] undefined: the whole parameter.
  void step_active(const std::vector<at::Tensor>& active, Gradients gradients = Gradients::kKept);

  /// Moments and step counts, for checkpoints of pre-training: `exp_avg.<i>`, `exp_avg_sq.<i>`, `step.<i>`, not copies.
  TensorMap state() const;
  /// \throws kCheckpoint when a tensor is missing or of another size.
  void load_state(const TensorMap& state);

 private:
  struct Work;

  void update(const std::vector<at::Tensor>& active, double lr, Gradients gradients);
  void update_by_operators(const std::vector<at::Tensor>& active, double lr, Gradients gradients);
  at::Tensor& contiguous_grad(size_t parameter);
  static void run_all(const std::vector<Work>& work);
  Work work_on(size_t parameter, int64_t slice, Gradients gradients, double lr);

  OptimizerConfig config_;
  Engine engine_;
  std::vector<at::Tensor> parameters_, exp_avgs_, exp_avg_sqs_;
  std::vector<at::Tensor> steps_;  // scalar per parameter, or [E] per stacked parameter once step_active was used
};

}  // namespace evenkeel
