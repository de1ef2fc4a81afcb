#include "nn/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "nn/kernels/vector.h"

namespace evenkeel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
void rotate_all(const at::Tensor& x_THP, const RotaryTable& table, double sign, at::Tensor& out_THP) {
  const int64_t heads = x_THP.size(1), width = x_THP.size(2);
  const T* x = x_THP.const_data_ptr<T>();
  T* out = out_THP.mutable_data_ptr<T>();
  const float *cos = table.cos.const_data_ptr<float>(), *sin = table.sin.const_data_ptr<float>();
  at::parallel_for(0, x_THP.size(0), kernels::row_grain(heads * width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * heads; row < end * heads; ++row)
      kernels::rotate(x + row * width, cos + row / heads * width, sin + row / heads * width, static_cast<T>(sign),
                      out + row * width, width);
  });
}

at::Tensor rotated(const at::Tensor& x_THP, const RotaryTable& table, double sign) {
  const auto x = x_THP.contiguous();
  auto out = at::empty_like(x);
  if (x.scalar_type() == at::kDouble)
    rotate_all<double>(x, table, sign, out);
  else
    rotate_all<float>(x, table, sign, out);
  return out;
}

// A rotation's transpose is the rotation back.
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

double scale_of(int64_t head_width) { return 1.0 / std::sqrt(static_cast<double>(head_width)); }

// One sequence as the library's attention wants it: the H / G query heads that share a key head become the batch, so
// that keys and values are broadcast, not copied. [L, H, P] -> [H/G, G, L, P]
at::Tensor grouped_queries(const at::Tensor& q_LHP, int64_t kv_heads) {
  const int64_t groups = q_LHP.size(1) / kv_heads;
  return q_LHP.view({q_LHP.size(0), kv_heads, groups, q_LHP.size(2)}).permute({2, 1, 0, 3});
}
at::Tensor broadcast_keys(const at::Tensor& k_LGP, int64_t groups) {
  return k_LGP.transpose(0, 1).unsqueeze(0).expand({groups, k_LGP.size(1), k_LGP.size(0), k_LGP.size(2)});
}

struct AttentionNode : torch::autograd::Function<AttentionNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_THP, const at::Tensor& k_TGP,
                            const at::Tensor& v_TGP, const std::vector<int64_t>& offsets) {
    const int64_t kv_heads = k_TGP.size(1), groups = q_THP.size(1) / kv_heads;
    auto out_THP = at::empty_like(q_THP);
    variable_list saved{q_THP, k_TGP, v_TGP, out_THP};
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const int64_t start = offsets[b], length = offsets[b + 1] - start;
      const auto q = grouped_queries(q_THP.narrow(0, start, length), kv_heads);
      const auto k = broadcast_keys(k_TGP.narrow(0, start, length), groups);
      const auto v = broadcast_keys(v_TGP.narrow(0, start, length), groups);
      auto [out, logsumexp] =
          at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true, {}, scale_of(q_THP.size(2)));
      grouped_queries(out_THP.narrow(0, start, length), kv_heads).copy_(out);
      saved.push_back(logsumexp);
    }
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["offsets"] = offsets;
    return out_THP;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &q_THP = saved[0], &k_TGP = saved[1], &v_TGP = saved[2], &out_THP = saved[3];
    const auto offsets = ctx->saved_data["offsets"].toIntVector();
    const int64_t kv_heads = k_TGP.size(1), groups = q_THP.size(1) / kv_heads;
    const auto grad_THP = grads[0].contiguous();
    auto dq_THP = at::empty_like(q_THP), dk_TGP = at::empty_like(k_TGP), dv_TGP = at::empty_like(v_TGP);
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      const int64_t start = offsets[b], length = offsets[b + 1] - start;
      const auto rows = [&](const at::Tensor& x) { return x.narrow(0, start, length); };
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grouped_queries(rows(grad_THP), kv_heads), grouped_queries(rows(q_THP), kv_heads),
          broadcast_keys(rows(k_TGP), groups), broadcast_keys(rows(v_TGP), groups),
          grouped_queries(rows(out_THP), kv_heads), saved[4 + b], 0.0, true, {}, scale_of(q_THP.size(2)));
      grouped_queries(rows(dq_THP), kv_heads).copy_(dq);
      rows(dk_TGP).transpose(0, 1).copy_(groups == 1 ? dk[0] : dk.sum(0));
      rows(dv_TGP).transpose(0, 1).copy_(groups == 1 ? dv[0] : dv.sum(0));
    }
    return {dq_THP, dk_TGP, dv_TGP, at::Tensor()};
  }
};

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::span<const int64_t> offsets) {
  EK_CHECK(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(0) == k.size(0) && q.size(2) == k.size(2) &&
               k.size(1) > 0 && q.size(1) % k.size(1) == 0,
           kShape, "attention: q has sizes ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes());
  check_offsets(offsets, q.size(0));
}

}  // namespace

RotaryTable rotary_table(const at::Tensor& positions_T, int64_t head_width, double theta) {
  const auto even = at::arange(0, head_width, 2, at::kLong).to(at::kFloat);
  const auto inverse_frequency = at::reciprocal(at::pow(theta, even / static_cast<double>(head_width))).to(at::kFloat);
  const auto angles = positions_T.to(at::kFloat).unsqueeze(1) * inverse_frequency.unsqueeze(0);
  const auto both = at::cat({angles, angles}, 1);
  return {both.cos(), both.sin()};
}

at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table) {
  EK_CHECK(x_THP.dim() == 3 && table.cos.size(0) == x_THP.size(0) && table.cos.size(1) == x_THP.size(2), kShape,
           "apply_rotary: x has sizes ", x_THP.sizes(), ", the table ", table.cos.sizes());
  return RotaryNode::apply(x_THP, table.cos, table.sin);
}

void check_offsets(std::span<const int64_t> offsets, int64_t tokens) {
  EK_CHECK(!offsets.empty() && offsets.front() == 0 && offsets.back() == tokens, kShape, "attention: offsets end at ",
           offsets.empty() ? -1 : offsets.back(), ", there are ", tokens, " tokens");
  for (size_t b = 0; b + 1 < offsets.size(); ++b)
    EK_CHECK(offsets[b] < offsets[b + 1], kShape, "attention: sequence ", b, " is empty");
}

at::Tensor packed_attention(const at::Tensor& q_THP, const at::Tensor& k_TGP, const at::Tensor& v_TGP,
                            std::span<const int64_t> offsets) {
  check(q_THP, k_TGP, v_TGP, offsets);
  return AttentionNode::apply(q_THP.contiguous(), k_TGP.contiguous(), v_TGP.contiguous(),
                              std::vector<int64_t>(offsets.begin(), offsets.end()))
      .view({q_THP.size(0), -1});
}

}  // namespace evenkeel
