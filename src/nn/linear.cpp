#include "nn/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "nn/kernels/frozen_matmul.h"

namespace evenkeel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Factors that are absent are empty tensors: the graph takes no undefined ones.
struct LinearNode : torch::autograd::Function<LinearNode> {
  enum Input : size_t { kX, kWeight, kA, kB, kChangeA, kChangeB, kInputs };

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TI, const at::Tensor& w_OI,
                            const at::Tensor& a_RI, const at::Tensor& b_OR, double scaling,
                            const at::Tensor& change_a_RI, const at::Tensor& change_b_OR, bool native) {
    ctx->save_for_backward({x_TI, w_OI, a_RI, b_OR, change_a_RI, change_b_OR});
    ctx->saved_data["scaling"] = scaling;
    ctx->saved_data["native"] = native;
    auto y_TO = kernels::frozen_matmul(x_TI, w_OI, path_of(native));
    add_product(x_TI, a_RI, b_OR, scaling, y_TO);
    add_product(x_TI, change_a_RI, change_b_OR, 1.0, y_TO);
    return y_TO;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x_TI = saved[kX], &w_OI = saved[kWeight], &a_RI = saved[kA], &b_OR = saved[kB];
    const double scaling = ctx->saved_data["scaling"].toDouble();
    const auto dy_TO = grads[0].contiguous();
    at::Tensor dx_TI, dw_OI, da_RI, db_OR;
    if (ctx->needs_input_grad(kX))
      dx_TI = kernels::frozen_matmul_backward(dy_TO, w_OI, path_of(ctx->saved_data["native"].toBool()));
    if (ctx->needs_input_grad(kWeight)) dw_OI = at::mm(dy_TO.t(), x_TI).to(w_OI.scalar_type());
    if (a_RI.numel() > 0) {
      const auto dy_b_TR = at::mm(dy_TO, b_OR).mul_(scaling);
      if (dx_TI.defined()) dx_TI.addmm_(dy_b_TR, a_RI);
      if (ctx->needs_input_grad(kA)) da_RI = at::mm(dy_b_TR.t(), x_TI);
      if (ctx->needs_input_grad(kB)) db_OR = at::mm(dy_TO.t(), at::mm(x_TI, a_RI.t())).mul_(scaling);
    }
    if (dx_TI.defined() && saved[kChangeA].numel() > 0) dx_TI.addmm_(at::mm(dy_TO, saved[kChangeB]), saved[kChangeA]);
    return {dx_TI, dw_OI, da_RI, db_OR, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  // Saved as what the graph can save.
  static MatmulPath path_of(bool native) { return native ? MatmulPath::kNative : MatmulPath::kWiden; }
  static void add_product(const at::Tensor& x_TI, const at::Tensor& a_RI, const at::Tensor& b_OR, double scaling,
                          at::Tensor& y_TO) {
    if (a_RI.numel() > 0) y_TO.addmm_(at::mm(x_TI, a_RI.t()), b_OR.t(), 1, scaling);
  }
};

void check_shapes(const at::Tensor& x, const at::Tensor& w) {
  EK_CHECK(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1), kShape, "linear: x has sizes ", x.sizes(),
           ", the weight ", w.sizes());
}

void check_shapes(const LoraFactors& lora, const at::Tensor& w) {
  EK_CHECK(lora.a.dim() == 2 && lora.b.dim() == 2 && lora.a.size(1) == w.size(1) && lora.b.size(0) == w.size(0) &&
               lora.a.size(0) == lora.b.size(1),
           kShape, "linear: adapter a has sizes ", lora.a.sizes(), " and b ", lora.b.sizes(), " beside a weight of ",
           w.sizes());
}

/// A and B (with the core) as the node takes them.
struct Prepared {
  at::Tensor a, b;
  double scaling = 1;
};

Prepared prepared(const LoraFactors* lora, const at::Tensor& x, const at::Tensor& w) {
  if (!lora) return {at::empty({0}, x.options()), at::empty({0}, x.options())};
  check_shapes(*lora, w);
  const auto dtype = x.scalar_type();
  const auto b = lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b;
  return {lora->a.to(dtype), b.to(dtype), lora->scaling};
}

}  // namespace

at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const SiteFactors& beside, MatmulPath path) {
  check_shapes(x_TI, w_OI);
  const auto x = x_TI.contiguous();
  const auto lora = prepared(beside.adapter, x, w_OI), change = prepared(beside.change, x, w_OI);
  return LinearNode::apply(x, w_OI, lora.a, lora.b, lora.scaling, change.a, change.b, path == MatmulPath::kNative);
}

}  // namespace evenkeel
