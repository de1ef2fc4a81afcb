#include "train/weight_gradient.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace evenkeel::train {
namespace {

/// Returns factors with B = 0 for delta W = B I, so that d loss / dB = d loss / dW.
lora::LoraFactors probe(const lora::Site& shape, c10::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  return {.a = at::eye(shape.in, options).expand(lora::stacked_shape(shape, shape.in, shape.in)).contiguous(),
          .b = at::zeros(lora::stacked_shape(shape, shape.out, shape.in), options).requires_grad_(true)};
}

}  // namespace

std::map<std::string, at::Tensor> weight_gradients(const models::CausalLm& model, const lora::Sites& sites,
                                                   const GradientRows& of) {
  lora::AdapterState adapters;
  for (const auto& [name, site] : sites) {
    const auto& b = adapters.emplace(name, probe(site, model.device())).first->second.b;
    b.mutable_grad() = at::zeros_like(b);
  }
  for (size_t first = 0; first < of.rows.size(); first += static_cast<size_t>(of.batch_size)) {
    const size_t count = std::min(static_cast<size_t>(of.batch_size), of.rows.size() - first);
    const auto batch = data::pack(of.rows.subspan(first, count));
    if (batch.target_rows.numel() == 0) continue;
    const auto loss = model.loss(batch, {.adapters = &adapters, .router = of.router, .compute = of.compute});
    (loss.sum / static_cast<double>(loss.count)).backward();
  }
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, factors] : adapters) gradients[name] = factors.b.grad().cpu();
  return gradients;
}

}  // namespace evenkeel::train
