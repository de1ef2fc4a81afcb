#include "nn/attention/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>
#include <vector>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/attention/shared_prefixes.h"
#include "nn/dense/norm.h"
#include "nn/kernels/layers/causal_attention.h"
#include "nn/kernels/primitives/vector.h"
#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
void rotate_all(const at::Tensor& x_THP, const RotaryTable& table, double sign, at::Tensor& out_THP) {
  const int64_t heads = x_THP.size(1), width = x_THP.size(2);
  const T* x = x_THP.const_data_ptr<T>();
  T* out = out_THP.mutable_data_ptr<T>();
  const float *cos = table.cos.const_data_ptr<float>(), *sin = table.sin.const_data_ptr<float>();
  for_each_range(x_THP.size(0), kernels::row_grain(heads * width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * heads; row < end * heads; ++row)
      kernels::rotate(x + row * width, cos + row / heads * width, sin + row / heads * width, static_cast<T>(sign),
                      out + row * width, width);
  });
}

// `out` may be x.
void rotate(const at::Tensor& x_THP, const RotaryTable& table, double sign, at::Tensor& out_THP) {
  x_THP.scalar_type() == at::kDouble ? rotate_all<double>(x_THP, table, sign, out_THP)
                                     : rotate_all<float>(x_THP, table, sign, out_THP);
}

at::Tensor rotated(const at::Tensor& x_THP, const RotaryTable& table, double sign) {
  const auto x = x_THP.contiguous();
  auto out = at::empty_like(x);
  rotate(x, table, sign, out);
  return out;
}

// The backward pass of a rotation is the inverse rotation.
struct RotaryNode : torch::autograd::Function<RotaryNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_THP, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotated(x_THP, {cos, sin}, 1);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {rotated(grads[0], {saved[0], saved[1]}, -1), at::Tensor(), at::Tensor()};
  }
};

// The operands of attention: q [T, H, P], k and v [T, G, P], the output [T, H, P], logsumexp [T, H].
struct AttentionOperands {
  at::Tensor q_THP, k_TGP, v_TGP, out_THP, logsumexp_TH;
  int64_t window = 0;
  double soft_cap = 0;
};

// Computes attention for one sequence and one key/value head.
template <typename T>
struct SequenceHeads {
  const AttentionOperands& of;
  int64_t start, length, kv_head;

  int64_t kv_stride() const { return of.k_TGP.size(1) * of.k_TGP.size(2); }
  int64_t q_stride() const { return of.q_THP.size(1) * of.q_THP.size(2); }
  int64_t heads() const { return of.q_THP.size(1) / of.k_TGP.size(1); }
  int64_t q_at() const { return start * q_stride() + kv_head * heads() * of.q_THP.size(2); }
  int64_t kv_at() const { return start * kv_stride() + kv_head * of.q_THP.size(2); }
  kernels::CausalAttention<T> view() const {
    return {.q = of.q_THP.const_data_ptr<T>() + q_at(),
            .k = of.k_TGP.const_data_ptr<T>() + kv_at(),
            .v = of.v_TGP.const_data_ptr<T>() + kv_at(),
            .length = length,
            .heads = heads(),
            .width = of.q_THP.size(2),
            .q_stride = q_stride(),
            .kv_stride = kv_stride(),
            .out = of.out_THP.mutable_data_ptr<T>() + q_at(),
            .logsumexp = of.logsumexp_TH.mutable_data_ptr<T>() + start * of.q_THP.size(1) + kv_head * heads(),
            .logsumexp_stride = of.q_THP.size(1),
            .window = of.window,
            .soft_cap = static_cast<T>(of.soft_cap)};
  }
};

template <typename T, typename F>
void for_each_attention(const AttentionOperands& of, std::span<const int64_t> offsets, const F& f) {
  const int64_t kv_heads = of.k_TGP.size(1), sequences = static_cast<int64_t>(offsets.size()) - 1;
  for_each_piece(sequences * kv_heads, [&](int64_t i) {
    const auto b = static_cast<size_t>(i / kv_heads);
    const kernels::WorkspaceLease<kernels::AttentionScratch<T>> scratch(
        kernels::workspace_pool<kernels::AttentionScratch<T>>());
    f(SequenceHeads<T>{of, offsets[b], offsets[b + 1] - offsets[b], i % kv_heads}, *scratch);
  });
}

template <typename T>
void attend(const AttentionOperands& of, std::span<const int64_t> offsets) {
  for_each_attention<T>(of, offsets, [](const SequenceHeads<T>& piece, kernels::AttentionScratch<T>& scratch) {
    kernels::causal_attention<T>(piece.view(), scratch);
  });
}

template <typename T>
void attend_backward(const AttentionOperands& of, std::span<const int64_t> offsets, const at::Tensor& dout_THP,
                     const variable_list& grads) {
  for_each_attention<T>(of, offsets, [&](const SequenceHeads<T>& piece, kernels::AttentionScratch<T>& scratch) {
    kernels::causal_attention_backward<T>(piece.view(),
                                          {.dout = dout_THP.const_data_ptr<T>() + piece.q_at(),
                                           .dq = grads[0].mutable_data_ptr<T>() + piece.q_at(),
                                           .dk = grads[1].mutable_data_ptr<T>() + piece.kv_at(),
                                           .dv = grads[2].mutable_data_ptr<T>() + piece.kv_at()},
                                          scratch);
  });
}

// Returns the gradients of q, k and v.
variable_list attention_gradients(const AttentionOperands& of, std::span<const int64_t> offsets,
                                  const at::Tensor& dout_THP) {
  variable_list out{at::empty_like(of.q_THP), at::empty_like(of.k_TGP), at::empty_like(of.v_TGP)};
  dout_THP.scalar_type() == at::kDouble ? attend_backward<double>(of, offsets, dout_THP, out)
                                        : attend_backward<float>(of, offsets, dout_THP, out);
  return out;
}

// The settings of a call. The node keeps them for its backward pass.
struct AttentionCall : torch::CustomClassHolder {
  AttentionCall(std::span<const int64_t> o, const AttentionSteps& s, const at::Tensor& rows_T)
      : offsets(o.begin(), o.end()), rows(rows_T), steps{s.q, s.k, s.v}, window(s.window), soft_cap(s.soft_cap) {}
  const std::vector<int64_t> offsets;
  const SharedRows rows;
  const std::array<HeadSteps, 3> steps;
  const int64_t window;
  const double soft_cap;
};
using AttentionCallPointer = c10::intrusive_ptr<AttentionCall>;

at::Tensor normalised(const at::Tensor& x_THP, const HeadSteps& steps) {
  if (!steps.norm.defined()) return x_THP;
  const int64_t width = steps.norm.numel();
  EK_CHECK(width == x_THP.size(2) || width == x_THP.size(1) * x_THP.size(2), kShape, "attention: a norm has ", width,
           " weights, heads have sizes ", x_THP.sizes());
  return rms_norm(x_THP.reshape({-1, width}), steps.norm, steps.norm_eps).view(x_THP.sizes());
}

// Turns the gradient of the steps' result into the gradient of x, in place. Returns the gradient of the norm's weight.
at::Tensor steps_backward(at::Tensor& dy_THP, const at::Tensor& x_THP, const HeadSteps& steps, bool weight_wanted) {
  if (steps.rotary.cos.defined()) rotate(dy_THP, steps.rotary, -1, dy_THP);
  // As in at::clamp, a value at the bound passes its gradient on, and NaN does not.
  if (steps.clip) dy_THP.masked_fill_(normalised(x_THP, steps).abs().le(*steps.clip).logical_not_(), 0);
  if (!steps.norm.defined()) return {};
  const std::array<int64_t, 2> rows{-1, steps.norm.numel()};
  const auto weight = steps.norm.to(x_THP.scalar_type()).contiguous();
  auto norm = rms_norm_backward(dy_THP.view(rows), x_THP.view(rows), weight, steps.norm_eps, true, weight_wanted);
  dy_THP = norm.dx_TD.view(x_THP.sizes());
  return weight_wanted ? norm.dw_D.to(steps.norm.scalar_type()) : at::Tensor();
}

// Applies the steps to input i and copies its rows to tokens.
at::Tensor with_steps(at::TensorList inputs, size_t i, const AttentionCall& call) {
  return call.rows.expand(apply_steps(inputs[i], call.steps[i]));
}

// Inputs and their gradients: q, k, v, then the weights of their norms.
struct AttentionNode : torch::autograd::Function<AttentionNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, const AttentionCallPointer& call) {
    const auto q_THP = with_steps(inputs, 0, *call);
    const AttentionOperands of{q_THP,
                               with_steps(inputs, 1, *call),
                               with_steps(inputs, 2, *call),
                               at::empty_like(q_THP),
                               at::empty({q_THP.size(0), q_THP.size(1)}, q_THP.options()),
                               call->window,
                               call->soft_cap};
    q_THP.scalar_type() == at::kDouble ? attend<double>(of, call->offsets) : attend<float>(of, call->offsets);
    const auto out_RHP = call->rows.representatives(of.out_THP);
    ctx->save_for_backward({inputs[0], inputs[1], inputs[2], out_RHP, call->rows.representatives(of.logsumexp_TH)});
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return out_RHP;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<AttentionCall>(ctx->saved_data["call"].toCapsule());
    const auto& rows = call->rows;
    const auto& steps = call->steps;
    auto out =
        attention_gradients({with_steps(saved, 0, *call), with_steps(saved, 1, *call), with_steps(saved, 2, *call),
                             rows.expand(saved[3]), rows.expand(saved[4]), call->window, call->soft_cap},
                            call->offsets, rows.scatter_to_representatives(grads[0].contiguous()));
    for (auto& gradient : out) gradient = rows.sum_by_row(gradient);
    out.resize(2 * steps.size() + 1);
    for (size_t i = 0, weight = steps.size(); i < steps.size(); ++i, ++weight)
      if (ctx->needs_input_grad(i) || ctx->needs_input_grad(weight))
        out[weight] = steps_backward(out[i], saved[i], steps[i], ctx->needs_input_grad(weight));
    return out;
  }
};

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::span<const int64_t> offsets,
           const at::Tensor& rows_T) {
  EK_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(2) == k.size(2) &&
               k.size(1) > 0 && q.size(1) % k.size(1) == 0,
           kShape, "attention: q has sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes());
  check_offsets(offsets, rows_T.defined() ? rows_T.size(0) : q.size(0));
}

}  // namespace

at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table) {
  EK_CHECK(x_THP.dim() == 3 && table.cos.size(0) == x_THP.size(0) && table.cos.size(1) == x_THP.size(2), kShape,
           "apply_rotary: x has sizes ", x_THP.sizes(), ", the table ", table.cos.sizes());
  return RotaryNode::apply(x_THP, table.cos, table.sin);
}

at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps) {
  auto x = normalised(x_THP, steps);
  if (steps.clip) x = at::clamp(x, -*steps.clip, *steps.clip);
  return steps.rotary.cos.defined() ? apply_rotary(x, steps.rotary) : x;
}

void check_offsets(std::span<const int64_t> offsets, int64_t tokens) {
  EK_CHECK(!offsets.empty() && offsets.front() == 0 && offsets.back() == tokens, kShape, "attention: offsets end at ",
           offsets.empty() ? -1 : offsets.back(), ", there are ", tokens, " tokens");
  for (size_t b = 0; b + 1 < offsets.size(); ++b)
    EK_CHECK(offsets[b] < offsets[b + 1], kShape, "attention: sequence ", b, " is empty");
}

at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            std::span<const int64_t> offsets, const AttentionSteps& steps, const at::Tensor& rows_T) {
  check(q_RHP, k_RGP, v_RGP, offsets, rows_T);
  variable_list inputs{q_RHP.contiguous(), k_RGP.contiguous(), v_RGP.contiguous()};
  // Autograd accepts no undefined tensors: an absent weight is an empty tensor.
  for (const auto* each : {&steps.q, &steps.k, &steps.v})
    inputs.push_back(each->norm.defined() ? each->norm : at::empty({0}, q_RHP.options()));
  return AttentionNode::apply(at::TensorList(inputs), c10::make_intrusive<AttentionCall>(offsets, steps, rows_T))
      .view({q_RHP.size(0), -1});
}

}  // namespace evenkeel::nn
