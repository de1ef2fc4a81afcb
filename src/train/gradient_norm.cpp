#include "train/gradient_norm.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace evenkeel::train {

void clip_gradient_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                        const nn::StepArithmetic& arithmetic) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  if (!gradients.empty()) arithmetic.clip_norm(std::move(gradients), max_norm);
}

}  // namespace evenkeel::train
