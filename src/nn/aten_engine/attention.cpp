#include "nn/aten_engine/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "nn/aten_engine/norm.h"
#include "nn/cuda_kernels/norm.h"
#include "nn/dense/loss.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rotates the halves (x1, x2) to (x1 cos - x2 sin, x2 cos + x1 sin). `sign` -1 is the inverse, for the backward pass.
// The two halves of the table are equal.
at::Tensor rotate_halves(const at::Tensor& x_THP, const at::Tensor& cos_TP, const at::Tensor& sin_TP, double sign) {
  const int64_t half = x_THP.size(2) / 2;
  const auto sin = sin_TP.narrow(1, 0, half).unsqueeze(1);
  auto out = at::empty(x_THP.sizes(), x_THP.options());
  at::mul_out(out, x_THP, cos_TP.unsqueeze(1));
  out.narrow(2, 0, half).addcmul_(x_THP.narrow(2, half, half), sin, -sign);
  out.narrow(2, half, half).addcmul_(x_THP.narrow(2, 0, half), sin, sign);
  return out;
}

struct RotaryNode : torch::autograd::Function<RotaryNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_THP, const at::Tensor& cos,
                            const at::Tensor& sin) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    ctx->save_for_backward({cos, sin});
    return rotate_halves(x_THP, cos, sin, 1);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    return {rotate_halves(grads[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

double scale_of(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(-1))); }

struct FlashNode : torch::autograd::Function<FlashNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_THP, const at::Tensor& k_TGP,
                            const at::Tensor& v_TGP, const at::Tensor& starts_B1, int64_t longest, int64_t window) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [out, logsumexp, seed, unused, mask] = at::_flash_attention_forward(
        q_THP, k_TGP, v_TGP, starts_B1, starts_B1, longest, longest, /*dropout_p=*/0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false, scale_of(q_THP), tokens_before(window), tokens_after(window));
    ctx->save_for_backward({q_THP, k_TGP, v_TGP, out, logsumexp, starts_B1, seed, unused});
    ctx->saved_data["longest"] = longest;
    ctx->saved_data["window"] = window;
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    const int64_t longest = ctx->saved_data["longest"].toInt(), window = ctx->saved_data["window"].toInt();
    auto [dq, dk, dv] = at::_flash_attention_backward(
        grads[0].contiguous(), saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[5], longest, longest,
        0.0, true, saved[6], saved[7], scale_of(saved[0]), tokens_before(window), tokens_after(window));
    return {dq, dk, dv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Pads sequences and repeats key/value heads: [T, G, P] -> [B, H, L, P].
at::Tensor padded_heads(const at::Tensor& x_TGP, int64_t heads, const Layout& layout) {
  const auto padded_TGP = gather_rows(x_TGP, layout.padded).view({-1, layout.longest, x_TGP.size(1), 1, x_TGP.size(2)});
  const int64_t sequences = padded_TGP.size(0), group = heads / x_TGP.size(1);
  return padded_TGP.expand({sequences, layout.longest, x_TGP.size(1), group, x_TGP.size(2)})
      .reshape({sequences, layout.longest, heads, x_TGP.size(2)})
      .transpose(1, 2);
}

at::Tensor causal_mask(int64_t longest, const at::Tensor& like) {
  return at::ones({longest, longest}, like.options().dtype(at::kBool)).tril();
}

// Returns which of L tokens each token attends to, [L, L]; nothing without a window, which the library computes itself.
std::optional<at::Tensor> window_mask(int64_t longest, int64_t window, const at::Tensor& like) {
  if (window <= 0 || window >= longest) return std::nullopt;
  return causal_mask(longest, like).triu(1 - window);
}

// Padding follows each sequence. Attention is causal, so no token attends to padding.
at::Tensor padded_attention(const at::Tensor& q_THP, const at::Tensor& k_TGP, const at::Tensor& v_TGP,
                            const Layout& layout, int64_t window, double soft_cap) {
  const int64_t heads = q_THP.size(1);
  const auto mask_LL = window_mask(layout.longest, window, q_THP);
  const auto q = padded_heads(q_THP, heads, layout), k = padded_heads(k_TGP, heads, layout),
             v = padded_heads(v_TGP, heads, layout);
  const auto out_BHLP =
      soft_cap > 0 ? capped_attention(q, k, v, mask_LL ? *mask_LL : causal_mask(layout.longest, q_THP), soft_cap)
                   : at::scaled_dot_product_attention(q, k, v, mask_LL, 0.0, /*is_causal=*/!mask_LL, scale_of(q_THP));
  return gather_rows(out_BHLP.transpose(1, 2).reshape({-1, heads, q_THP.size(2)}), layout.unpadded);
}

/// Returns the signed sines of the table that rotates both queries and keys; nothing if there is no such table.
std::optional<at::Tensor> common_sines(const AttentionSteps& steps, const Layout& layout) {
  const auto &q = steps.q.rotary, &k = steps.k.rotary;
  if (!q.sin.defined() || !q.sin.is_same(k.sin) || !q.cos.is_same(k.cos)) return std::nullopt;
  for (size_t i = 0; i < layout.rotary.size(); ++i)
    if (layout.rotary[i].sin.is_same(q.sin)) return layout.signed_sin[i];
  return std::nullopt;
}

/// Computes apply_rotary() of queries and keys. The first halves of the heads are copied in front of the second halves
/// and behind them, so that the halves and the exchanged halves are two views.
at::Tensor rotated_together(const at::Tensor& q_NHP, const at::Tensor& k_NGP, const at::Tensor& cos_NP,
                            const at::Tensor& signed_sin_NP) {
  const int64_t rows = q_NHP.size(0), heads = q_NHP.size(1) + k_NGP.size(1), half = q_NHP.size(2) / 2;
  const auto part = [&](const at::Tensor& x, int64_t which) { return x.narrow(2, which * half, half); };
  const auto x =
      at::cat({part(q_NHP, 0), part(k_NGP, 0), part(q_NHP, 1), part(k_NGP, 1), part(q_NHP, 0), part(k_NGP, 0)}, 1)
          .view({rows, 3, heads, half});
  const auto of_halves = [&](const at::Tensor& table_NP) { return table_NP.unflatten(1, {2, half}).unsqueeze(2); };
  const auto out = at::empty({rows, heads, 2 * half}, q_NHP.options());
  auto out_halves = out.view({rows, heads, 2, half}).transpose(1, 2);
  at::mul_out(out_halves, x.narrow(1, 0, 2), of_halves(cos_NP));
  out_halves.addcmul_(x.narrow(1, 1, 2), of_halves(signed_sin_NP));
  return out;
}

/// Returns has_flash() of each GPU of this process.
const std::vector<bool>& gpus_with_flash() {
  static const auto all = [] {
    std::vector<bool> of;
    for (int64_t i = 0; i < gpu_count(); ++i)
      of.push_back(has_flash(device_identity({c10::kCUDA, static_cast<c10::DeviceIndex>(i)}).architecture));
    return of;
  }();
  return all;
}

HeadSteps without_rotary(HeadSteps steps) {
  steps.rotary = {};
  return steps;
}

}  // namespace

at::Tensor capped_attention(const at::Tensor& q_BHLP, const at::Tensor& k_BHMP, const at::Tensor& v_BHMP,
                            const at::Tensor& visible, double soft_cap) {
  const auto type = q_BHLP.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto scores = at::matmul(q_BHLP * scale_of(q_BHLP), k_BHMP.transpose(2, 3)).to(type);
  const auto seen = soft_capped(scores, soft_cap).masked_fill(visible.logical_not(), -INFINITY);
  return at::matmul(at::softmax(seen, 3).to(v_BHMP.scalar_type()), v_BHMP);
}

at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table) {
  return RotaryNode::apply(x_THP, table.cos, table.sin);
}

std::optional<int64_t> tokens_before(int64_t window) { return window > 0 ? std::optional(window - 1) : std::nullopt; }

std::optional<int64_t> tokens_after(int64_t window) { return window > 0 ? std::optional<int64_t>(0) : std::nullopt; }

bool has_flash(std::string_view capability) {
  constexpr int kLeastMajor = 8;
  const auto major = parse_number<int>(capability.substr(0, capability.find('.')));
  return !major || *major >= kLeastMajor;
}

bool has_flash(const at::Tensor& q) {
  const auto type = q.scalar_type();
  return q.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) && q.size(2) % 8 == 0 && q.size(2) <= 256 &&
         gpus_with_flash().at(static_cast<size_t>(q.get_device()));
}

at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps) {
  if (auto own = cuda::head_steps(x_THP, steps)) return *std::move(own);
  auto x = x_THP;
  if (steps.norm.defined())
    x = aten::rms_norm(x.reshape({-1, steps.norm.numel()}), steps.norm, steps.norm_eps).view(x_THP.sizes());
  if (steps.clip) x = at::clamp(x, -*steps.clip, *steps.clip);
  return steps.rotary.cos.defined() ? aten::apply_rotary(x, steps.rotary) : x;
}

std::pair<at::Tensor, at::Tensor> apply_steps_together(const at::Tensor& q_NHP, const at::Tensor& k_NGP,
                                                       const AttentionSteps& steps, const Layout& layout) {
  const auto sines = common_sines(steps, layout);
  if (!sines || c10::GradMode::is_enabled())
    return {aten::apply_steps(q_NHP, steps.q), aten::apply_steps(k_NGP, steps.k)};
  const auto both = rotated_together(aten::apply_steps(q_NHP, without_rotary(steps.q)),
                                     aten::apply_steps(k_NGP, without_rotary(steps.k)), steps.q.rotary.cos, *sines);
  return {both.narrow(1, 0, q_NHP.size(1)), both.narrow(1, q_NHP.size(1), k_NGP.size(1))};
}

at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            const Layout& layout, const AttentionSteps& steps) {
  const auto of_tokens = [&](const at::Tensor& x_R, const HeadSteps& own) {
    const auto result = aten::apply_steps(x_R, own);
    return layout.copies.defined() ? gather_rows(result, layout.copies) : result;
  };
  const auto q = of_tokens(q_RHP, steps.q), k = of_tokens(k_RGP, steps.k), v = of_tokens(v_RGP, steps.v);
  auto out = has_flash(q) && steps.soft_cap == 0
                 ? FlashNode::apply(q, k, v, layout.starts_B1, layout.longest, steps.window)
                 : padded_attention(q, k, v, layout, steps.window, steps.soft_cap);
  if (layout.firsts.defined()) out = gather_rows(out, layout.firsts);
  return out.reshape({q_RHP.size(0), -1});
}

}  // namespace evenkeel::nn::aten
