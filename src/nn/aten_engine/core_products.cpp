#include "nn/aten_engine/core_products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "nn/dense/stacked.h"

namespace evenkeel::nn::aten {
namespace {

/// Factors of equal shapes.
struct Alike {
  std::vector<lora::LoraFactors*> sites{};
  std::vector<at::Tensor> b{}, core{};
};

/// Returns the tensors as one, differentiable if one of them is.
at::Tensor one_of(const std::vector<at::Tensor>& tensors) {
  const bool trained =
      std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  return trained ? stacked(tensors) : at::stack(tensors);
}

}  // namespace

lora::AdapterState with_cores_multiplied(const lora::AdapterState* state) {
  lora::AdapterState multiplied;
  if (!state) return multiplied;
  std::map<std::pair<std::vector<int64_t>, at::ScalarType>, Alike> by_shape;
  for (const auto& [site, factors] : *state) {
    if (!factors.core.defined() || factors.core.is_cpu() || factors.b.dim() != 2) continue;
    auto& own = multiplied[site] = factors;
    own.core.reset();
    auto& alike = by_shape[{factors.b.sizes().vec(), factors.b.scalar_type()}];
    alike.sites.push_back(&own), alike.b.push_back(factors.b), alike.core.push_back(factors.core);
  }
  for (const auto& [shape, alike] : by_shape) {
    const auto products = at::bmm(one_of(alike.b), one_of(alike.core)).unbind();
    for (size_t i = 0; i < products.size(); ++i) alike.sites[i]->b = products[i];
  }
  return multiplied;
}

}  // namespace evenkeel::nn::aten
