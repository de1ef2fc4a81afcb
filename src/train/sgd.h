/// \file  Declares stochastic gradient descent with momentum.
#pragma once

#include <vector>

#include "train/optimizer.h"

namespace evenkeel::train {

/// Stochastic gradient descent: v = momentum v + (g + weight_decay theta), theta = theta - lr v, with v = 0 at the
/// start. It equals torch.optim.SGD step for step, without dampening or Nesterov momentum. It computes with LibTorch's
/// operators on any device, without synchronising. Source: Polyak 1964 (momentum).
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<at::Tensor> parameters, const OptimizerConfig& config);

  void step(double lr = -1, Gradients gradients = Gradients::kKept) override;
  void step_active(const std::vector<at::Tensor>& active, Gradients gradients = Gradients::kKept) override;
  /// Returns the directions v: `momentum.<i>`; empty without momentum.
  TensorMap state() const override;
  void load_state(const TensorMap& state) override;

 private:
  void update(const std::vector<at::Tensor>& active, double lr, Gradients gradients);
  at::Tensor direction(size_t parameter, const at::Tensor& active);

  OptimizerConfig config_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> momenta_;  // v, one per parameter; empty without momentum
};

}  // namespace evenkeel::train
