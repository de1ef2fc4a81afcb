#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/format/limits.h"
#include "base/system/parallel.h"
#include "train/adamw_by_operators.h"
#include "train/adamw_kernel.h"

namespace evenkeel::train {
namespace {

constexpr int64_t kPiece = int64_t{1} << 15;  // numbers per task of a thread

template <typename T>
AdamWSpan<T> part_of(const std::array<at::Tensor, 4>& tensors, int64_t begin, int64_t end) {
  const auto at = [&](size_t i) { return tensors[i].mutable_data_ptr<T>() + begin; };
  return {at(0), at(1), at(2), at(3), end - begin};
}

}  // namespace

at::Tensor stored_tensor(const TensorMap& state, const std::string& name, const at::Tensor& like) {
  const auto found = state.find(name);
  EK_CHECK(found != state.end(), kCheckpoint, "optimizer state lacks ", name);
  EK_CHECK(found->second.numel() == like.numel() || name.starts_with("step"), kCheckpoint, "optimizer state ", name,
           " has ", found->second.numel(), " values, expected ", like.numel());
  return found->second.to(like.options(), /*non_blocking=*/false, /*copy=*/true);
}

/// A tensor or a slice of one, with the factors of its step.
struct AdamW::Work {
  std::array<at::Tensor, 4> tensors;  // parameter, gradient, moments
  AdamWFactors factors{};

  void run(int64_t begin, int64_t end) const {
    if (tensors[0].scalar_type() == at::kDouble)
      adamw(part_of<double>(tensors, begin, end), factors);
    else
      adamw(part_of<float>(tensors, begin, end), factors);
  }
};

AdamW::AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config, nn::EngineKind engine)
    : config_(config), engine_(engine), parameters_(std::move(parameters)) {
  for (const auto& parameter : parameters_) {
    const auto type = parameter.scalar_type();
    EK_CHECK(parameter.is_contiguous() && (type == at::kFloat || type == at::kDouble), kInternal,
             "AdamW: a parameter of sizes ", parameter.sizes(), " and type ", type,
             ", allowed: contiguous, float32 or float64");
    exp_avgs_.push_back(at::zeros_like(parameter));
    exp_avg_sqs_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
}

void AdamW::step(double lr, Gradients gradients) { update({}, lr < 0 ? config_.lr : lr, gradients); }

void AdamW::step_active(const std::vector<at::Tensor>& active, Gradients gradients) {
  update(active, config_.lr, gradients);
}

at::Tensor& AdamW::contiguous_grad(size_t parameter) {
  auto& grad = parameters_[parameter].mutable_grad();
  if (!grad.is_contiguous()) grad = grad.contiguous();
  return grad;
}

/// \param slice  index in a stacked parameter; -1: the whole parameter
AdamW::Work AdamW::work_on(size_t parameter, int64_t slice, Gradients gradients, double lr) {
  Work work{.tensors = {parameters_[parameter].detach(), contiguous_grad(parameter), exp_avgs_[parameter],
                        exp_avg_sqs_[parameter]}};
  auto step = steps_[parameter];
  if (slice >= 0) {
    for (auto& tensor : work.tensors) tensor = tensor[slice];
    step = step[slice];
  }
  const double count = step.add_(1).item<double>();
  work.factors = {.beta1 = config_.betas[0],
                  .beta2 = config_.betas[1],
                  .eps = config_.eps,
                  .decay = 1 - lr * config_.weight_decay,
                  .lr = lr / (1 - std::pow(config_.betas[0], count)),
                  .root_correction = std::sqrt(1 - std::pow(config_.betas[1], count)),
                  .zero_gradient = gradients == Gradients::kZeroed};
  return work;
}

void AdamW::update(const std::vector<at::Tensor>& active, double lr, Gradients gradients) {
  const c10::NoGradGuard no_grad;
  if (engine_ == nn::EngineKind::kAten) return update_by_operators(active, lr, gradients);
  std::vector<Work> work;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].grad().defined()) continue;
    const bool masked = p < active.size() && active[p].defined();
    if (masked && steps_[p].dim() == 0) steps_[p] = steps_[p].repeat({parameters_[p].size(0)});
    if (steps_[p].dim() == 0) {
      work.push_back(work_on(p, -1, gradients, lr));
      continue;
    }
    for (int64_t i = 0; i < parameters_[p].size(0); ++i) {
      if (!masked || active[p][i].item<bool>())
        work.push_back(work_on(p, i, gradients, lr));
      else if (gradients == Gradients::kZeroed)
        parameters_[p].mutable_grad()[i].zero_();
    }
  }
  run_all(work);
}

/// Updates whole parameters together, and stacks with a step count per slice together.
void AdamW::update_by_operators(const std::vector<at::Tensor>& active, double lr, Gradients gradients) {
  AdamWTensors whole;
  std::vector<AdamWSlices> stacks;
  std::vector<at::Tensor> grads;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].grad().defined()) continue;
    const auto parameter = parameters_[p].detach(), grad = contiguous_grad(p);
    grads.push_back(grad);
    const bool masked = p < active.size() && active[p].defined();
    if (masked && steps_[p].dim() == 0) steps_[p] = steps_[p].repeat({parameter.size(0)});
    if (steps_[p].dim() == 0) {
      whole.parameters.push_back(parameter), whole.gradients.push_back(grad), whole.steps.push_back(steps_[p]);
      whole.exp_avgs.push_back(exp_avgs_[p]), whole.exp_avg_sqs.push_back(exp_avg_sqs_[p]);
    } else {
      const auto active_E = masked ? active[p] : at::ones_like(steps_[p]);
      stacks.push_back({parameter, grad, exp_avgs_[p], exp_avg_sqs_[p], steps_[p], active_E});
    }
  }
  step_by_operators(stacks, config_, lr);
  step_by_operators(whole, config_, lr);
  if (gradients == Gradients::kZeroed && !grads.empty()) at::_foreach_zero_(grads);
}

/// Splits all tensors into pieces of equal length. Each thread takes the next piece when it is free.
void AdamW::run_all(const std::vector<Work>& work) {
  struct Piece {
    const Work* work;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (const auto& one : work)
    for (int64_t begin = 0, n = one.tensors[0].numel(); begin < n; begin += kPiece)
      pieces.push_back({&one, begin, std::min(n, begin + kPiece)});
  for_each_piece(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const auto& piece = pieces[static_cast<size_t>(i)];
    piece.work->run(piece.begin, piece.end);
  });
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
    exp_avgs_[p] = stored_tensor(state, concat("exp_avg.", p), exp_avgs_[p]);
    exp_avg_sqs_[p] = stored_tensor(state, concat("exp_avg_sq.", p), exp_avg_sqs_[p]);
    steps_[p] = stored_tensor(state, concat("step.", p), steps_[p]);
  }
}

}  // namespace evenkeel::train
