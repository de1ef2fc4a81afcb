#include "train/sgd.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "base/plain/text.h"

namespace evenkeel::train {
namespace {

/// Returns a mask of slices [E] in a form that broadcasts over the stack [E, ...].
at::Tensor over_slices(const at::Tensor& active_E, const at::Tensor& stack) {
  std::vector<int64_t> sizes(static_cast<size_t>(stack.dim()), 1);
  sizes[0] = -1;
  return active_E.to(at::kBool).view(sizes);
}

}  // namespace

Sgd::Sgd(std::vector<at::Tensor> parameters, const OptimizerConfig& config)
    : config_(config), parameters_(std::move(parameters)) {
  if (config_.momentum == 0) return;
  for (const auto& parameter : parameters_) momenta_.push_back(at::zeros_like(parameter));
}

void Sgd::step(double lr, Gradients gradients) { update({}, lr < 0 ? config_.lr : lr, gradients); }

void Sgd::step_active(const std::vector<at::Tensor>& active, Gradients gradients) {
  update(active, config_.lr, gradients);
}

/// Updates v of a parameter and returns it; 0 for inactive slices, whose v does not change.
at::Tensor Sgd::direction(size_t parameter, const at::Tensor& active) {
  auto value = parameters_[parameter].grad();
  if (config_.weight_decay != 0) value = value.add(parameters_[parameter].detach(), config_.weight_decay);
  const bool masked = active.defined();
  const auto moves = masked ? over_slices(active, value) : at::Tensor();
  if (!momenta_.empty()) {
    auto& momentum = momenta_[parameter];
    value = momentum.mul(config_.momentum).add_(value);
    momentum.copy_(masked ? at::where(moves, value, momentum) : value);
  }
  return masked ? at::where(moves, value, 0.0) : value;
}

void Sgd::update(const std::vector<at::Tensor>& active, double lr, Gradients gradients) {
  const c10::NoGradGuard no_grad;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].grad().defined()) continue;
    parameters_[p].detach().sub_(direction(p, p < active.size() ? active[p] : at::Tensor()), lr);
    if (gradients == Gradients::kZeroed) parameters_[p].mutable_grad().zero_();
  }
}

TensorMap Sgd::state() const {
  TensorMap state;
  for (size_t p = 0; p < momenta_.size(); ++p) state[concat("momentum.", p)] = momenta_[p];
  return state;
}

void Sgd::load_state(const TensorMap& state) {
  for (size_t p = 0; p < momenta_.size(); ++p) momenta_[p] = stored_tensor(state, concat("momentum.", p), momenta_[p]);
}

}  // namespace evenkeel::train
