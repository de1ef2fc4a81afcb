/// \file  Adds up the clipped gradients of the rows of a step and makes the sum private (train/private_steps.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "train/private_steps.h"

namespace evenkeel::train {

/// The summed gradients of one step. Not thread-safe. Memory: as much as the gradients of the trained tensors.
class PrivateGradient {
 public:
  /// \param trained  the trained tensors, with zeroed gradients
  explicit PrivateGradient(const std::vector<at::Tensor>& trained);

  /// Adds the gradients of one row, scaled to a norm of at most `clip`, and sets them to zero. The norm is computed in
  /// float64. A row whose gradient is not finite adds nothing.
  void add_row(double clip);
  /// Adds noise to the sum, divides it by the lot, and writes the result into the gradients of the trained tensors. The
  /// sum is zero afterwards.
  /// \param step  index of the step in its round
  /// \return an unbiased estimate of (squared norm of the sum without noise) / (expected squared norm of the noise). It
  /// is computed from the noisy sum and may be below 0
  double finish(const PrivateSteps& steps, int64_t step);

 private:
  std::vector<at::Tensor> gradients_, sums_;
  int64_t values_ = 0;
};

}  // namespace evenkeel::train
