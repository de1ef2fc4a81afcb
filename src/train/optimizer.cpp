#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "base/limits.h"

namespace evenkeel {
namespace {

/// The lists at::_fused_adamw_ takes, in step.
struct TensorLists {
  std::vector<at::Tensor> parameters, grads, exp_avgs, exp_avg_sqs, steps;

  void add(const at::Tensor& parameter, const at::Tensor& grad, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
           const at::Tensor& step) {
    parameters.push_back(parameter);
    grads.push_back(grad);
    exp_avgs.push_back(exp_avg);
    exp_avg_sqs.push_back(exp_avg_sq);
    steps.push_back(step);
  }
};

void fused_step(TensorLists& lists, double lr, const OptimizerConfig& config) {
  if (lists.parameters.empty()) return;
  at::_foreach_add_(lists.steps, 1);
  at::_fused_adamw_(lists.parameters, lists.grads, lists.exp_avgs, lists.exp_avg_sqs, /*max_exp_avg_sqs=*/{},
                    lists.steps, lr, config.betas[0], config.betas[1], config.weight_decay, config.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

at::Tensor take(const TensorMap& state, const std::string& name, const at::Tensor& like) {
  const auto found = state.find(name);
  EK_CHECK(found != state.end(), kCheckpoint, "optimizer state lacks ", name);
  EK_CHECK(found->second.numel() == like.numel() || name.starts_with("step"), kCheckpoint, "optimizer state ", name,
           " has ", found->second.numel(), " values, expected ", like.numel());
  return found->second.to(like.options(), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

void OptimizerConfig::resolve(const config::Table& table) const {
  table.check(name == "adamw", "name", concat("\"", name, "\""), "adamw");
  table.check_above_zero("lr", lr);
  const bool good_betas = betas.size() == 2 && betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1;
  table.check(good_betas, "betas", concat("[", join(betas), "]"), "two numbers in [0, 1)");
  table.check_above_zero("eps", eps);
  table.check_from_zero("weight_decay", weight_decay);
}

AdamW::AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config)
    : config_(config), parameters_(std::move(parameters)) {
  for (const auto& parameter : parameters_) {
    exp_avgs_.push_back(at::zeros_like(parameter));
    exp_avg_sqs_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
}

void AdamW::step(double lr) { update({}, lr < 0 ? config_.lr : lr); }

void AdamW::step_active(const std::vector<at::Tensor>& active) { update(active, config_.lr); }

void AdamW::update(const std::vector<at::Tensor>& active, double lr) {
  const c10::NoGradGuard no_grad;
  TensorLists lists;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const auto parameter = parameters_[p].detach();
    const auto& grad = parameters_[p].grad();
    if (!grad.defined()) continue;
    const bool masked = p < active.size() && active[p].defined();
    if (masked && steps_[p].dim() == 0) steps_[p] = steps_[p].repeat({parameter.size(0)});
    if (steps_[p].dim() == 0) {
      lists.add(parameter, grad, exp_avgs_[p], exp_avg_sqs_[p], steps_[p]);
      continue;
    }
    for (int64_t i = 0; i < parameter.size(0); ++i)
      if (!masked || active[p][i].item<bool>())
        lists.add(parameter[i], grad[i], exp_avgs_[p][i], exp_avg_sqs_[p][i], steps_[p][i]);
  }
  fused_step(lists, lr, config_);
}

void AdamW::zero_grad() {
  for (auto& parameter : parameters_)
    if (parameter.grad().defined()) parameter.mutable_grad().zero_();
}

TensorMap AdamW::state() const {
  TensorMap state;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    state[concat("exp_avg.", p)] = exp_avgs_[p];
    state[concat("exp_avg_sq.", p)] = exp_avg_sqs_[p];
    state[concat("step.", p)] = steps_[p];
  }
  return state;
}

void AdamW::load_state(const TensorMap& state) {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    exp_avgs_[p] = take(state, concat("exp_avg.", p), exp_avgs_[p]);
    exp_avg_sqs_[p] = take(state, concat("exp_avg_sq.", p), exp_avg_sqs_[p]);
    steps_[p] = take(state, concat("step.", p), steps_[p]);
  }
}

}  // namespace evenkeel
