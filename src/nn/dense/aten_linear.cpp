#include "nn/dense/aten_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/dense/gradients.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs of the node. The saved x A^T follows them.
enum LinearTensor : size_t {
  kLinearX,
  kLinearWeight,
  kLinearA,
  kLinearB,
  kLinearChangeA,
  kLinearChangeB,
  kLinearXA,
  kLinearTensors = kLinearXA
};

bool present(const at::Tensor& factor) { return factor.numel() > 0; }

struct LinearNode : torch::autograd::Function<LinearNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, double scaling, at::ScalarType type) {
    variable_list saved(tensors.begin(), tensors.end());
    const auto x_TI = saved[kLinearX] = tensors[kLinearX].to(type);
    auto y_TO = at::mm(x_TI, tensors[kLinearWeight].to(type).t());
    saved.emplace_back(at::empty({0}, x_TI.options()));
    if (present(tensors[kLinearA])) {
      saved[kLinearXA] = at::mm(x_TI, tensors[kLinearA].to(type).t());
      y_TO.addmm_(saved[kLinearXA], tensors[kLinearB].to(type).t(), 1, scaling);
    }
    if (present(tensors[kLinearChangeA]))
      y_TO.addmm_(at::mm(x_TI, tensors[kLinearChangeA].to(type).t()), tensors[kLinearChangeB].to(type).t());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["scaling"] = scaling;
    return y_TO;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto dy_TO = grads[0].contiguous();
    const auto type = dy_TO.scalar_type();
    variable_list out(kLinearTensors + 2);
    if (ctx->needs_input_grad(kLinearWeight)) out[kLinearWeight] = at::mm(dy_TO.t(), saved[kLinearX]);
    if (ctx->needs_input_grad(kLinearX)) out[kLinearX] = at::mm(dy_TO, saved[kLinearWeight].to(type));
    if (present(saved[kLinearA])) adapter_gradients(ctx, saved, dy_TO, out);
    if (present(saved[kLinearChangeA]) && out[kLinearX].defined())
      out[kLinearX].addmm_(at::mm(dy_TO, saved[kLinearChangeB].to(type)), saved[kLinearChangeA].to(type));
    return out;
  }

 private:
  static void adapter_gradients(const AutogradContext* ctx, const variable_list& saved, const at::Tensor& dy_TO,
                                variable_list& out) {
    const double scaling = ctx->saved_data.at("scaling").toDouble();
    const auto type = dy_TO.scalar_type();
    const auto dxa_TR = at::mm(dy_TO, saved[kLinearB].to(type));
    if (ctx->needs_input_grad(kLinearA))
      out[kLinearA] = accumulate_gradient(saved[kLinearA], at::mm(dxa_TR.t(), saved[kLinearX]), scaling);
    if (ctx->needs_input_grad(kLinearB))
      out[kLinearB] = accumulate_gradient(saved[kLinearB], at::mm(dy_TO.t(), saved[kLinearXA]), scaling);
    if (out[kLinearX].defined()) out[kLinearX].addmm_(dxa_TR, saved[kLinearA].to(type), 1, scaling);
  }
};

}  // namespace

at::ScalarType inner_type(const at::Tensor& x, const Compute& compute) {
  return compute.inner == at::kFloat ? x.scalar_type() : compute.inner;
}

at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const LinearFactors& adapter,
                  const LinearFactors& change, at::ScalarType type) {
  const variable_list tensors{x_TI, w_OI, adapter.a_RI, adapter.b_OR, change.a_RI, change.b_OR};
  return LinearNode::apply(at::TensorList(tensors), adapter.scaling, type);
}

}  // namespace evenkeel::nn::aten
