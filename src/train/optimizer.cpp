#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "base/format/limits.h"
#include "nn/engines/engine_of.h"

namespace evenkeel::train {

at::Tensor stored_tensor(const TensorMap& state, const std::string& name, const at::Tensor& like) {
  const auto found = state.find(name);
  EK_CHECK(found != state.end(), kCheckpoint, "optimizer state lacks ", name);
  EK_CHECK(found->second.numel() == like.numel() || name.starts_with("step"), kCheckpoint, "optimizer state ", name,
           " has ", found->second.numel(), " values, expected ", like.numel());
  return found->second.to(like.options(), /*non_blocking=*/false, /*copy=*/true);
}

AdamW::AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config, nn::EngineKind engine)
    : config_(config), arithmetic_(nn::engine_of(engine).step()), state_{.parameters = std::move(parameters)} {
  for (const auto& parameter : state_.parameters) {
    const auto type = parameter.scalar_type();
    EK_CHECK(parameter.is_contiguous() && (type == at::kFloat || type == at::kDouble), kInternal,
             "AdamW: a parameter of sizes ", parameter.sizes(), " and type ", type,
             ", allowed: contiguous, float32 or float64");
    state_.exp_avgs.push_back(at::zeros_like(parameter));
    state_.exp_avg_sqs.push_back(at::zeros_like(parameter));
    state_.steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
}

void AdamW::step(double lr, Gradients gradients) { update({}, lr < 0 ? config_.lr : lr, gradients); }

void AdamW::step_active(const std::vector<at::Tensor>& active, Gradients gradients) {
  update(active, config_.lr, gradients);
}

void AdamW::update(const std::vector<at::Tensor>& active, double lr, Gradients gradients) {
  const c10::NoGradGuard no_grad;
  arithmetic_.adamw(state_, {.lr = lr,
                             .betas = {config_.betas[0], config_.betas[1]},
                             .eps = config_.eps,
                             .weight_decay = config_.weight_decay,
                             .active = active,
                             .zero_gradients = gradients == Gradients::kZeroed});
}

TensorMap AdamW::state() const {
  TensorMap state;
  for (size_t p = 0; p < state_.parameters.size(); ++p) {
    state[concat("exp_avg.", p)] = state_.exp_avgs[p];
    state[concat("exp_avg_sq.", p)] = state_.exp_avg_sqs[p];
    state[concat("step.", p)] = state_.steps[p];
  }
  return state;
}

void AdamW::load_state(const TensorMap& state) {
  for (size_t p = 0; p < state_.parameters.size(); ++p) {
    state_.exp_avgs[p] = stored_tensor(state, concat("exp_avg.", p), state_.exp_avgs[p]);
    state_.exp_avg_sqs[p] = stored_tensor(state, concat("exp_avg_sq.", p), state_.exp_avg_sqs[p]);
    state_.steps[p] = stored_tensor(state, concat("step.", p), state_.steps[p]);
  }
}

}  // namespace evenkeel::train
