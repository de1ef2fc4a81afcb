#include "nn/cuda_kernels/norm.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/source/arguments.h"

namespace evenkeel::nn::cuda {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The sizes of a norm over heads. Rows are those of the norm.
struct HeadSizes {
  int64_t rows, width, head_width;
  int per_token;

  static HeadSizes of(const at::Tensor& x_RHP, const at::Tensor& factors) {
    const int64_t head = x_RHP.size(2), width = factors.defined() ? factors.numel() : head;
    const int64_t per_token = x_RHP.size(1) * head / width;
    return {x_RHP.size(0) * per_token, width, head, static_cast<int>(per_token)};
  }
  /// A pack of a row must not reach from one half of a head into the other.
  bool can_be_wide(at::ScalarType type, std::initializer_list<const at::Tensor*> tensors, bool rotates) const {
    return cuda::can_be_wide(rotates ? head_width / 2 : width, type, tensors);
  }
};

at::Tensor defined_or_not(const at::Tensor& x) { return x.numel() > 0 ? x : at::Tensor(); }

/// Absent tensors of its inputs are empty ones, because autograd accepts no undefined tensors.
struct HeadNormNode : torch::autograd::Function<HeadNormNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_RHP, const at::Tensor& factors,
                            const at::Tensor& cos, const at::Tensor& sin, double eps) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    const auto norm = defined_or_not(factors), cosines = defined_or_not(cos), sines = defined_or_not(sin);
    const auto sizes = HeadSizes::of(x_RHP, norm);
    auto y = at::empty_like(x_RHP);
    const auto rms = norm.defined() ? at::empty({sizes.rows}, norm.options()) : at::Tensor();
    launch(*device_for(Kernel::kNorm, x_RHP), "head_norm_forward", x_RHP.scalar_type(),
           sizes.can_be_wide(x_RHP.scalar_type(), {&x_RHP, &y}, cosines.defined()), {sizes.rows},
           HeadNormForward{x_RHP.data_ptr(), address<float>(norm), y.data_ptr(), address<float>(rms),
                           address<float>(cosines), address<float>(sines), static_cast<int>(sizes.width),
                           static_cast<int>(sizes.head_width), sizes.per_token, static_cast<float>(eps)});
    ctx->save_for_backward({norm.defined() ? x_RHP : at::Tensor(), norm, cosines, sines, rms});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &norm = saved[1], &cosines = saved[2], &sines = saved[3], &rms = saved[4];
    const auto dy = grads[0].contiguous();
    const auto sizes = HeadSizes::of(dy, norm);
    auto dx = at::empty_like(dy);
    launch(*device_for(Kernel::kNorm, dy), "head_norm_backward", dy.scalar_type(),
           sizes.can_be_wide(dy.scalar_type(), {&dy, &x, &dx}, cosines.defined()), {sizes.rows},
           HeadNormBackward{dy.data_ptr(), address<void>(x), address<float>(norm), address<float>(rms),
                            address<float>(cosines), address<float>(sines), dx.data_ptr(),
                            static_cast<int>(sizes.width), static_cast<int>(sizes.head_width), sizes.per_token});
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct ResidualNormNode : torch::autograd::Function<ResidualNormNode> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x_RD, const at::Tensor& added_RD,
                               const at::Tensor& factors_D, double eps, at::ScalarType norm_type) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto type = added_RD.scalar_type();
    const int64_t rows = x_RD.size(0), width = x_RD.size(1);
    auto sum_RD = at::empty_like(x_RD), y_RD = at::empty_like(added_RD, added_RD.options().dtype(norm_type));
    const auto [y, y_float] = in_either_type(y_RD, type);
    const auto rms = at::empty({rows}, x_RD.options());
    launch(*device_for(Kernel::kNorm, x_RD), "residual_norm_forward", type,
           can_be_wide(width, type, {&x_RD, &added_RD, &sum_RD, &y_RD}), {rows},
           ResidualNormForward{address<float>(x_RD), added_RD.data_ptr(), address<float>(factors_D),
                               address<float>(sum_RD), y, y_float, address<float>(rms), static_cast<int>(width),
                               static_cast<float>(eps)});
    ctx->save_for_backward({sum_RD, factors_D, rms});
    ctx->saved_data["type"] = static_cast<int64_t>(type);
    return {sum_RD, y_RD};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    const auto dsum = grads[0].contiguous(), dy = grads[1].contiguous();
    const int64_t rows = dsum.size(0), width = dsum.size(1);
    const auto [dy_own, dy_float] = in_either_type(dy, type);
    auto dx = at::empty_like(dsum);
    const auto dadded = type == at::kFloat ? at::Tensor() : at::empty_like(dy, dy.options().dtype(type));
    launch(*device_for(Kernel::kNorm, dsum), "residual_norm_backward", type,
           can_be_wide(width, type, {&dsum, &dy, &saved[0], &dx, &dadded}), {rows},
           ResidualNormBackward{dy_own, dy_float, address<float>(dsum), address<float>(saved[0]),
                                address<float>(saved[1]), address<float>(saved[2]), address<float>(dx),
                                address<void>(dadded), static_cast<int>(width)});
    return {dx, dadded.defined() ? dadded : dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  /// Returns the values' address as one of the kernel's type, or else as one of float32.
  static std::pair<void*, float*> in_either_type(const at::Tensor& x, at::ScalarType type) {
    return x.scalar_type() == type ? std::pair(x.data_ptr(), static_cast<float*>(nullptr))
                                   : std::pair(static_cast<void*>(nullptr), address<float>(x));
  }
};

bool gets_gradient(const at::Tensor& weight) { return at::GradMode::is_enabled() && weight.requires_grad(); }

at::Tensor as_factors(const at::Tensor& weight) { return weight.detach().to(at::kFloat).contiguous(); }

bool can_normalise(const at::Tensor& x_RHP, const at::Tensor& weight) {
  return (weight.numel() == x_RHP.size(2) || weight.numel() == x_RHP.size(1) * x_RHP.size(2)) && !gets_gradient(weight);
}

bool can_rotate(const at::Tensor& x_RHP, const RotaryTable& table) {
  return x_RHP.size(2) % 2 == 0 && table.cos.sizes() == at::IntArrayRef({x_RHP.size(0), x_RHP.size(2)});
}

}  // namespace

std::optional<at::Tensor> head_steps(const at::Tensor& x_RHP, const HeadSteps& steps) {
  if (device_for(Kernel::kNorm, x_RHP) == nullptr || steps.clip) return std::nullopt;
  const bool norms = steps.norm.defined(), rotates = steps.rotary.cos.defined();
  if ((norms && !can_normalise(x_RHP, steps.norm)) || (rotates && !can_rotate(x_RHP, steps.rotary)))
    return std::nullopt;
  if (!norms && !rotates) return x_RHP;
  const auto none = at::empty({0}, x_RHP.options().dtype(at::kFloat));
  return HeadNormNode::apply(x_RHP.contiguous(), norms ? as_factors(steps.norm) : none,
                             rotates ? as_factors(steps.rotary.cos) : none,
                             rotates ? as_factors(steps.rotary.sin) : none, steps.norm_eps);
}

std::optional<NormedSum> residual_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D,
                                       double eps, at::ScalarType type) {
  const bool fits = device_for(Kernel::kNorm, added_RD) != nullptr && x_RD.scalar_type() == at::kFloat &&
                    (type == at::kFloat || type == added_RD.scalar_type());
  if (!fits || gets_gradient(weight_D)) return std::nullopt;
  const auto out = ResidualNormNode::apply(x_RD.contiguous(), added_RD.contiguous(), as_factors(weight_D), eps, type);
  return NormedSum{out[0], out[1]};
}

}  // namespace evenkeel::nn::cuda
