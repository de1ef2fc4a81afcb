#include "nn/aten_engine/norm.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType wide_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// Computes y and 1 / rms of each row [T, 1], without the fused operator.
std::pair<at::Tensor, at::Tensor> normalised(const at::Tensor& x_TD, const at::Tensor& w_D, double eps) {
  const auto x = x_TD.to(wide_type(x_TD));
  const auto rstd_T1 = at::rsqrt(x.square().mean(1, /*keepdim=*/true) + eps);
  return {(x * rstd_T1 * w_D).to(x_TD.scalar_type()), rstd_T1};
}

// Computes dx = rstd (w dy - x rstd^2 mean(w dy x)), dw = sum of dy x rstd.
variable_list gradients(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& w_D,
                        const at::Tensor& rstd_T1, bool weight_wanted) {
  const auto type = wide_type(x_TD);
  const auto x = x_TD.to(type), dy = dy_TD.to(type), wdy = dy * w_D;
  const auto mean_T1 = (wdy * x).mean(1, /*keepdim=*/true);
  return {(rstd_T1 * (wdy - x * (rstd_T1.square() * mean_T1))).to(x_TD.scalar_type()),
          weight_wanted ? (dy * x * rstd_T1).sum(0) : at::Tensor()};
}

struct RmsNormNode : torch::autograd::Function<RmsNormNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& w_D, double eps) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    const auto [y_TD, rstd_T1] =
        x_TD.is_cpu() ? normalised(x_TD, w_D, eps) : fused(at::_fused_rms_norm(x_TD, {x_TD.size(1)}, w_D, eps));
    ctx->save_for_backward({x_TD, w_D, rstd_T1});
    return y_TD;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    const auto &x_TD = saved[0], &w_D = saved[1], &rstd_T1 = saved[2];
    const auto dy_TD = grads[0].contiguous();
    if (x_TD.is_cpu()) {
      const auto out = gradients(dy_TD, x_TD, w_D, rstd_T1, ctx->needs_input_grad(1));
      return {out[0], out[1], at::Tensor()};
    }
    const auto [dx_TD, dw_D] = at::_fused_rms_norm_backward(dy_TD, x_TD, {x_TD.size(1)}, rstd_T1, w_D,
                                                            {ctx->needs_input_grad(0), ctx->needs_input_grad(1)});
    return {dx_TD, dw_D, at::Tensor()};
  }

 private:
  static std::pair<at::Tensor, at::Tensor> fused(const std::tuple<at::Tensor, at::Tensor>& of) {
    return {std::get<0>(of), std::get<1>(of)};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps) {
  return RmsNormNode::apply(x_TD.contiguous(), weight_D.to(x_TD.scalar_type()).contiguous(), eps);
}

}  // namespace evenkeel::nn::aten
