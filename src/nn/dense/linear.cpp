#include "nn/dense/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/plain/error.h"
#include "nn/dense/gradients.h"
#include "nn/kernels/layers/lora_product.h"
#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::nn {
namespace {

using kernels::LoraView;
using kernels::MatmulScratch;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs of the node, then the saved x A^T. Absent factors are empty tensors: autograd accepts no undefined ones.
enum LinearTensor : size_t { kLinearX, kLinearWeight, kLinearA, kLinearB, kLinearChangeA, kLinearChangeB, kLinearXA };

// The settings of a call. The node keeps them for its backward pass.
struct LinearSettings : torch::CustomClassHolder {
  LinearSettings(double s, at::Tensor scales, const MatmulTable& table)
      : scaling(s), scales_O(std::move(scales)), products(table) {}
  const double scaling;
  const at::Tensor scales_O;
  const MatmulTable products;
};
using LinearSettingsPointer = c10::intrusive_ptr<LinearSettings>;

template <typename T>
struct LinearWorkspace {
  kernels::MatmulScratch<T> product;
  kernels::LoraScratch<T> lora;
  kernels::Scratch<T> change_xa, dy_b, change_dy_b;
};

// Computes y = x W^T + LoRA branches, and x A^T of the adapter in `xa_TR`.
template <typename T>
void linear_forward(const variable_list& tensors, const LinearSettings& settings, at::Tensor& y_TO, at::Tensor& xa_TR) {
  const auto& x_TI = tensors[kLinearX];
  const int64_t rows = x_TI.size(0);
  const kernels::WorkspaceLease<LinearWorkspace<T>> workspace(kernels::workspace_pool<LinearWorkspace<T>>());
  const auto lora = kernels::LoraView<T>::of(tensors[kLinearA], tensors[kLinearB], settings.scaling),
             change = kernels::LoraView<T>::of(tensors[kLinearChangeA], tensors[kLinearChangeB], 1);
  T* xa = xa_TR.mutable_data_ptr<T>();
  T* change_xa = workspace->change_xa.at_least(rows * change.rank);
  const kernels::ResultOf<T> y{y_TO.mutable_data_ptr<T>(), y_TO.size(1)};
  kernels::GroupedOperandOf<T> output{kernels::StoredMatrix::of(tensors[kLinearWeight], settings.scales_O), y};
  std::vector<kernels::GroupedOperandOf<T>> lora_products;
  for (const auto& [branch, inner] : {std::pair{lora, xa}, {change, change_xa}}) {
    if (branch.rank == 0) continue;
    lora_products.push_back(lora_a_operand(branch, inner, branch.rank));
    output.epilogues.push_back(kernels::lora_b_epilogue<T>(branch, inner, branch.rank, rows));
  }
  const kernels::ActivationsOf<T> x{x_TI.const_data_ptr<T>(), rows, x_TI.size(1)};
  kernels::matmul_nt<T>(MatmulKernel::kFp32Exact, x, lora_products, workspace->product);
  kernels::matmul_nt<T>(settings.products.at(GemmContext::kLinear, Direction::kForward, rows), x, std::span(&output, 1),
                        workspace->product);
}

// Computes dx = dy W + LoRA branches, and scaling dy B of the adapter in workspace.dy_b.
template <typename T>
void input_gradient(const kernels::StoredMatrix& w, MatmulKernel kernel, const kernels::LoraView<T>& lora,
                    const kernels::LoraView<T>& change, const at::Tensor& dy_TO, at::Tensor& dx_TI,
                    LinearWorkspace<T>& workspace) {
  const int64_t rows = dy_TO.size(0);
  const T* dy = dy_TO.const_data_ptr<T>();
  std::vector<kernels::LowRankEpilogueOf<T>> epilogues;
  for (const auto& [branch, scratch] : {std::pair{&lora, &workspace.dy_b}, {&change, &workspace.change_dy_b}}) {
    if (branch->rank == 0) continue;
    T* dy_b = scratch->at_least(rows * branch->rank);
    rank_gradient(*branch, dy, rows, dy_b, workspace.product);
    epilogues.push_back(kernels::lora_a_epilogue<T>(*branch, dy_b, rows));
  }
  if (dx_TI.defined())
    kernels::matmul_nn<T>(kernel, {dy, rows, dy_TO.size(1)},
                          {w, {dx_TI.mutable_data_ptr<T>(), w.in}, std::move(epilogues)}, workspace.product);
}

struct LinearNode : torch::autograd::Function<LinearNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TI, const at::Tensor& w_OI,
                            const at::Tensor& a_RI, const at::Tensor& b_OR, const at::Tensor& change_a_RI,
                            const at::Tensor& change_b_OR, const LinearSettingsPointer& settings) {
    variable_list tensors{x_TI, w_OI, a_RI, b_OR, change_a_RI, change_b_OR};
    auto y_TO = at::empty({x_TI.size(0), w_OI.size(0)}, x_TI.options());
    auto xa_TR = at::empty({x_TI.size(0), a_RI.numel() > 0 ? a_RI.size(0) : 0}, x_TI.options());
    if (x_TI.scalar_type() == at::kDouble)
      linear_forward<double>(tensors, *settings, y_TO, xa_TR);
    else
      linear_forward<float>(tensors, *settings, y_TO, xa_TR);
    tensors.push_back(xa_TR);
    ctx->save_for_backward(std::move(tensors));
    ctx->saved_data["settings"] = c10::IValue::make_capsule(settings);
    return y_TO;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return saved[kLinearX].scalar_type() == at::kDouble ? backward_as<double>(ctx, saved, grads[0].contiguous())
                                                        : backward_as<float>(ctx, saved, grads[0].contiguous());
  }

 private:
  template <typename T>
  static variable_list backward_as(AutogradContext* ctx, const variable_list& saved, at::Tensor dy_TO) {
    variable_list out(kLinearXA + 1);
    const auto settings = c10::static_intrusive_pointer_cast<LinearSettings>(ctx->saved_data["settings"].toCapsule());
    auto x_TI = saved[kLinearX], xa_TR = saved[kLinearXA];
    const auto& w_OI = saved[kLinearWeight];
    const int64_t tokens = x_TI.size(0);
    if (ctx->needs_input_grad(kLinearWeight)) out[kLinearWeight] = at::mm(dy_TO.t(), x_TI).to(w_OI.scalar_type());
    const auto live = nonzero_rows(dy_TO);
    if (live)
      for (auto* rows : {&dy_TO, &x_TI, &xa_TR}) *rows = rows->index_select(0, *live);
    auto lora = kernels::LoraView<T>::of(saved[kLinearA], saved[kLinearB], settings->scaling);
    if (ctx->needs_input_grad(kLinearA)) lora.da = gradient_buffer<T>(saved[kLinearA], out[kLinearA]);
    if (ctx->needs_input_grad(kLinearB)) lora.db = gradient_buffer<T>(saved[kLinearB], out[kLinearB]);
    const auto change = kernels::LoraView<T>::of(saved[kLinearChangeA], saved[kLinearChangeB], 1);
    const kernels::WorkspaceLease<LinearWorkspace<T>> workspace(kernels::workspace_pool<LinearWorkspace<T>>());
    at::Tensor dx_TI;
    if (ctx->needs_input_grad(kLinearX)) dx_TI = at::empty({dy_TO.size(0), w_OI.size(1)}, dy_TO.options());
    input_gradient(kernels::StoredMatrix::of(w_OI, settings->scales_O),
                   settings->products.at(GemmContext::kLinear, Direction::kBackward, dy_TO.size(0)), lora, change,
                   dy_TO, dx_TI, *workspace);
    if (lora.rank > 0)
      kernels::factor_gradients(lora,
                                {.rows = dy_TO.size(0),
                                 .x = x_TI.const_data_ptr<T>(),
                                 .dy = dy_TO.const_data_ptr<T>(),
                                 .xa = xa_TR.const_data_ptr<T>(),
                                 .xa_stride = lora.rank,
                                 .dy_b = workspace->dy_b.data()},
                                workspace->lora, workspace->product);
    if (dx_TI.defined() && live)
      dx_TI = at::zeros({tokens, dx_TI.size(1)}, dx_TI.options()).index_copy_(0, *live, dx_TI);
    out[kLinearX] = dx_TI;
    return out;
  }
};

/// The factors A and B (with the core) in the form that the node accepts.
struct Prepared {
  at::Tensor a, b;
  double scaling = 1;
};

Prepared none(const at::Tensor& x) { return {at::empty({0}, x.options()), at::empty({0}, x.options())}; }

Prepared prepared_change(const lora::LoraFactors* change, const at::Tensor& x, const at::Tensor& w) {
  if (!change) return none(x);
  check_factor_shapes(change->a, change->b, w);
  return {kernels::frozen_factor(change->a, x.scalar_type()), kernels::frozen_factor(change->b, x.scalar_type())};
}

Prepared prepared_adapter(const lora::LoraFactors* lora, const at::Tensor& x, const at::Tensor& w) {
  if (!lora) return none(x);
  check_factor_shapes(lora->a, lora->b, w);
  const auto dtype = x.scalar_type();
  const auto b = lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b;
  return {lora->a.to(dtype).contiguous(), b.to(dtype).contiguous(), lora->scaling};
}

}  // namespace

at::Tensor linear(const at::Tensor& x_TI, const FrozenWeight& w, const lora::SiteFactors& factors,
                  const MatmulTable& products) {
  check_linear_shapes(x_TI, w.values_OI);
  const auto x = x_TI.contiguous();
  const auto lora = prepared_adapter(factors.adapter, x, w.values_OI),
             change = prepared_change(factors.change, x, w.values_OI);
  return LinearNode::apply(x, w.values_OI.contiguous(), lora.a, lora.b, change.a, change.b,
                           c10::make_intrusive<LinearSettings>(lora.scaling, w.scales_O, products));
}

}  // namespace evenkeel::nn
