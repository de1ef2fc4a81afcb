/// \file  AdamW by LibTorch's operators, on any device and without waiting for it. Dimension name: E slices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "train/optimizer_config.h"

namespace evenkeel {

/// Parameters with what a step reads and writes of each, side by side.
struct AdamWTensors {
  std::vector<at::Tensor> parameters{}, gradients{}, exp_avgs{}, exp_avg_sqs{};
  std::vector<at::Tensor> steps{};  ///< float32 scalars, counted up by the step
};

/// One step of all: kernels::adamw() up to rounding.
void step_by_operators(const AdamWTensors& all, const OptimizerConfig& config, double lr);

/// One step of the slices [i] of a stacked parameter for which active_E[i] is true; the others stand still.
struct AdamWSlices {
  at::Tensor parameter, gradient, exp_avg, exp_avg_sq;  // [E, ...]
  at::Tensor steps_E, active_E;                         // float32, bool
};
void step_by_operators(const AdamWSlices& stack, const OptimizerConfig& config, double lr);

}  // namespace evenkeel
