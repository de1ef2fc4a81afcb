#include "train/private_gradient.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <span>

namespace evenkeel::train {
namespace {

double norm_of(const std::vector<at::Tensor>& tensors) {
  const auto norms = at::_foreach_norm(tensors, 2, at::kDouble);
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

/// Returns noise of a tensor's shape, on its device.
at::Tensor noise_like(const at::Tensor& tensor, const PrivateSteps& steps, int64_t step, int64_t index) {
  const auto noise = at::zeros(tensor.sizes(), at::kFloat);
  steps.draws.add_noise(step, index, steps.report.noise * steps.report.clip,
                        {noise.mutable_data_ptr<float>(), static_cast<size_t>(noise.numel())});
  return noise.to(tensor.device());
}

}  // namespace

PrivateGradient::PrivateGradient(const std::vector<at::Tensor>& trained) {
  for (const auto& tensor : trained) {
    gradients_.push_back(tensor.grad());
    sums_.push_back(at::zeros_like(tensor.grad(), at::MemoryFormat::Contiguous));
    values_ += tensor.numel();
  }
}

void PrivateGradient::add_row(double clip) {
  const c10::NoGradGuard no_grad;
  const double norm = norm_of(gradients_);
  if (std::isfinite(norm)) at::_foreach_add_(sums_, gradients_, norm > clip ? clip / norm : 1.0);
  at::_foreach_zero_(gradients_);
}

double PrivateGradient::finish(const PrivateSteps& steps, int64_t step) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i].add_(noise_like(sums_[i], steps, step, static_cast<int64_t>(i)));
  const double noise = steps.report.noise * steps.report.clip * std::sqrt(static_cast<double>(values_));
  const double norm = norm_of(sums_) / noise;
  at::_foreach_div_(sums_, steps.lot);
  at::_foreach_copy_(gradients_, sums_);
  at::_foreach_zero_(sums_);
  return norm * norm - 1;
}

}  // namespace evenkeel::train
