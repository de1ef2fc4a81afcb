#include "nn/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "nn/kernels/frozen_matmul.h"

namespace evenkeel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Without an adapter a and b are empty: the graph takes no undefined tensors.
struct LinearNode : torch::autograd::Function<LinearNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TI, const at::Tensor& w_OI,
                            const at::Tensor& a_RI, const at::Tensor& b_OR, double scaling) {
    ctx->save_for_backward({x_TI, w_OI, a_RI, b_OR});
    ctx->saved_data["scaling"] = scaling;
    auto y_TO = kernels::frozen_matmul(x_TI, w_OI);
    if (a_RI.numel() > 0) y_TO.addmm_(at::mm(x_TI, a_RI.t()), b_OR.t(), 1, scaling);
    return y_TO;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x_TI = saved[0], &w_OI = saved[1], &a_RI = saved[2], &b_OR = saved[3];
    const double scaling = ctx->saved_data["scaling"].toDouble();
    const auto dy_TO = grads[0].contiguous();
    at::Tensor dx_TI, dw_OI, da_RI, db_OR;
    if (ctx->needs_input_grad(0)) dx_TI = kernels::frozen_matmul_backward(dy_TO, w_OI);
    if (ctx->needs_input_grad(1)) dw_OI = at::mm(dy_TO.t(), x_TI).to(w_OI.scalar_type());
    if (a_RI.numel() > 0) {
      const auto dy_b_TR = at::mm(dy_TO, b_OR).mul_(scaling);
      if (dx_TI.defined()) dx_TI.addmm_(dy_b_TR, a_RI);
      if (ctx->needs_input_grad(2)) da_RI = at::mm(dy_b_TR.t(), x_TI);
      if (ctx->needs_input_grad(3)) db_OR = at::mm(dy_TO.t(), at::mm(x_TI, a_RI.t())).mul_(scaling);
    }
    return {dx_TI, dw_OI, da_RI, db_OR, at::Tensor()};
  }
};

void check_shapes(const at::Tensor& x, const at::Tensor& w, const LoraFactors* lora) {
  EK_CHECK(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1), kShape, "linear: x has sizes ", x.sizes(),
           ", the weight ", w.sizes());
  if (!lora) return;
  EK_CHECK(lora->a.dim() == 2 && lora->b.dim() == 2 && lora->a.size(1) == w.size(1) && lora->b.size(0) == w.size(0) &&
               lora->a.size(0) == lora->b.size(1),
           kShape, "linear: adapter a has sizes ", lora->a.sizes(), " and b ", lora->b.sizes(), " beside a weight of ",
           w.sizes());
}

}  // namespace

at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const LoraFactors* lora) {
  check_shapes(x_TI, w_OI, lora);
  const auto x = x_TI.contiguous();
  if (!lora) {
    const auto none = at::empty({0}, x.options());
    return LinearNode::apply(x, w_OI, none, none, 1.0);
  }
  const auto dtype = x.scalar_type();
  const auto b = lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b;
  return LinearNode::apply(x, w_OI, lora->a.to(dtype), b.to(dtype), lora->scaling);
}

}  // namespace evenkeel
