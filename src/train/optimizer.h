/// \file  AdamW over stacked tensors in one fused pass, and its schedule for pre-training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/safetensors.h"
#include "nn/compute.h"

namespace evenkeel {

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 2e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-5;
  double weight_decay = 0.01;
  void visit(auto& field) {
    field("name", name, "adamw");
    field("lr", lr, "learning rate per step, constant within a federated run, > 0");
    field("betas", betas, "decay of the first and second moment, each in [0, 1)");
    field("eps", eps, "added outside the root, > 0");
    field("weight_decay", weight_decay, "decoupled, multiplied by lr, >= 0");
  }
  void resolve(const config::Table& table) const;
};

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
