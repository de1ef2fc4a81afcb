/// \file  Declares AdamW with LibTorch's operators. It works on any device and does not synchronise with it. Dimension
/// name: E slices.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "train/optimizer_config.h"

namespace evenkeel::train {

/// Lists parameters with their gradients, moments and step counts, in the same order.
struct AdamWTensors {
  std::vector<at::Tensor> parameters{}, gradients{}, exp_avgs{}, exp_avg_sqs{};
  std::vector<at::Tensor> steps{};  ///< float32 scalars, incremented by the step
};

/// Takes one step for all parameters, in place. The result equals adamw() (train/adamw_kernel.h) up to rounding.
/// REQUIRES gradients of all parameters. \param lr  learning rate of this step, in place of config.lr
void step_by_operators(const AdamWTensors& all, const OptimizerConfig& config, double lr);

/// Holds a stacked parameter. A step updates the slices [i] for which active_E[i] is true and leaves the others
/// unchanged.
struct AdamWSlices {
  at::Tensor parameter, gradient, exp_avg, exp_avg_sq;  // [E, ...]
  at::Tensor steps_E, active_E;                         // float32, bool
};
/// Takes one step for the active slices of stacked parameters of one float type. The factors of all slices are computed
/// together.
void step_by_operators(const std::vector<AdamWSlices>& stacks, const OptimizerConfig& config, double lr);

}  // namespace evenkeel::train
