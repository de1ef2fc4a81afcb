#include "nn/aten_engine/step_arithmetic.h"

#include <ATen/ATen.h>

#include <cmath>

namespace evenkeel::nn::aten {
namespace {

constexpr double kSmallest = 1e-6;  // added to the norm, as in torch

/// Reshapes one factor per slice so that it broadcasts over a stack [E, ...].
at::Tensor per_slice(const at::Tensor& value_E) { return value_E.view({-1, 1, 1}); }

at::Tensor norms_of(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> each;
  for (const auto& tensor : tensors)
    each.push_back(at::linalg_vector_norm(tensor.flatten(1), 2, 1, /*keepdim=*/false, at::kDouble));
  return at::linalg_vector_norm(at::stack(each), 2, 0);
}

/// Returns clamp(scale * term, -bound, bound) of each tensor of a layer.
std::vector<at::Tensor> clamped(std::span<const at::Tensor> terms, const at::Tensor& scale_E, double bound) {
  std::vector<at::Tensor> result;
  for (const auto& term : terms) result.push_back((term * per_slice(scale_E)).clamp_(-bound, bound));
  return result;
}

}  // namespace

at::Tensor AtenStepArithmetic::expert_norms(std::span<const at::Tensor> tensors) const { return norms_of(tensors); }

at::Tensor AtenStepArithmetic::add_terms(std::span<const ExpertTerms> layers, const TermScales& scales,
                                         const at::Tensor& norm_LE, double factor) const {
  const bool bounded = std::isfinite(scales.bound);
  const auto type = layers.front().terms.front().scalar_type();
  const auto scale_LE = bounded ? scales.scale_LE.to(type) : at::Tensor();
  const auto share_LE = bounded ? scales.share_LE : scales.share_LE * scales.scale_LE;
  const auto weight_LE = (share_LE * factor).to(type);
  std::vector<at::Tensor> norms;  // of clamped values
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto l = static_cast<int64_t>(i);
    const auto terms = bounded ? clamped(layers[i].terms, scale_LE[l], scales.bound) : layers[i].terms;
    const auto weight_E11 = per_slice(weight_LE[l]);
    for (size_t j = 0; j < terms.size(); ++j) layers[i].targets[j].addcmul_(terms[j], weight_E11);
    if (bounded) norms.push_back(norms_of(terms));
  }
  return share_LE * (bounded ? at::stack(norms) : norm_LE);
}

at::Tensor AtenStepArithmetic::limit_norm(std::vector<at::Tensor> gradients, double limit) const {
  std::vector<at::Tensor> norms;
  for (const auto& gradient : gradients)
    norms.push_back(at::linalg_vector_norm(gradient.flatten(), 2, {}, /*keepdim=*/false, at::kDouble));
  const auto norm = at::linalg_vector_norm(at::stack(norms), 2);
  const auto factor = (limit / norm).clamp_max(1);
  at::_foreach_mul_(gradients, factor.to(gradients.front().scalar_type()));
  return norm.gt(limit).to(at::kDouble);
}

void AtenStepArithmetic::clip_norm(std::vector<at::Tensor> gradients, double max_norm) const {
  const auto norm = at::stack(at::_foreach_norm(gradients)).norm();
  at::_foreach_mul_(gradients, at::reciprocal(norm + kSmallest).mul_(max_norm).clamp_max_(1.0));
}

}  // namespace evenkeel::nn::aten
