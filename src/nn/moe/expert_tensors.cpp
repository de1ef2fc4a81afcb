#include "nn/moe/expert_tensors.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn {
namespace {

/// Returns the sum of squares of expert e's slice of a stack.
template <typename T>
double squares_as(const at::Tensor& stack, int64_t e) {
  return kernels::sum_of_squares(stack.const_data_ptr<T>() + e * stack.stride(0), stack.stride(0));
}
double squares_of(const at::Tensor& stack, int64_t e) {
  return stack.scalar_type() == at::kDouble ? squares_as<double>(stack, e) : squares_as<float>(stack, e);
}

/// Adds weight * clamp(scale * term[e], -bound, bound) to target[e].
/// \return the sum of squares of the clamped values
template <typename T>
double add_as(const at::Tensor& target, const at::Tensor& term, int64_t e, double weight, double scale, double bound) {
  const int64_t size = term.stride(0);
  return kernels::add_clamped(static_cast<T>(weight), static_cast<T>(scale), static_cast<T>(bound),
                              term.const_data_ptr<T>() + e * size, target.mutable_data_ptr<T>() + e * size, size);
}

}  // namespace

at::Tensor expert_norms(std::span<const at::Tensor> tensors) {
  auto norm_E = at::zeros({tensors.front().size(0)}, at::kDouble);
  auto* norms = norm_E.mutable_data_ptr<double>();
  for_each_piece(norm_E.numel(), [&](int64_t e) {
    for (const auto& tensor : tensors) norms[e] += squares_of(tensor, e);
    norms[e] = std::sqrt(norms[e]);
  });
  return norm_E;
}

at::Tensor add_expert_terms(std::span<const at::Tensor> targets, std::span<const at::Tensor> terms,
                            const ExpertScales& scales, double factor) {
  auto norm_E = at::zeros_like(scales.share_E);
  auto* norms = norm_E.mutable_data_ptr<double>();
  const auto *share = scales.share_E.const_data_ptr<double>(), *scale = scales.scale_E.const_data_ptr<double>();
  for_each_piece(norm_E.numel(), [&](int64_t e) {
    double squares = 0;
    for (size_t j = 0; j < targets.size() && share[e] > 0; ++j) {
      const auto add = terms[j].scalar_type() == at::kDouble ? add_as<double> : add_as<float>;
      squares += add(targets[j], terms[j], e, factor * share[e], scale[e], scales.bound);
    }
    norms[e] = share[e] * std::sqrt(squares);
  });
  return norm_E;
}

}  // namespace evenkeel::nn
