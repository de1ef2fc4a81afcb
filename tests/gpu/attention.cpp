// The attention that only CUDA has. Flash attention over sequences of different lengths is computed sequence by
// sequence in float32.

#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "device_memory.h"
#include "recorder.h"
#include "transfers.h"

namespace evenkeel::simulated_gpu {
namespace {

struct Inputs {
  at::Tensor q_THP, k_TGP, v_TGP, q_ends, k_ends;
  double scale;
  bool causal;
  std::optional<int64_t> left;       // how many keys before its own a query attends to
  std::optional<at::Tensor> used{};  // how many keys each sequence has; nothing: they end where the next one's begin
};

void check_heads(const at::Tensor& x, const char* name) {
  TORCH_CHECK(x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf),
              "flash attention: ", name, " must have 16 bits");
  TORCH_CHECK(x.dim() == 3 && x.stride(-1) == 1, "flash attention: the last dimension of ", name,
              " must be contiguous");
  TORCH_CHECK(x.size(-1) % 8 == 0 && x.size(-1) <= 256, "flash attention: head size of ", name);
}

void check_starts(const at::Tensor& starts) {
  TORCH_CHECK(starts.is_cuda() && starts.scalar_type() == at::kInt && starts.is_contiguous(),
              "flash attention: cumulative lengths must be int32 on the device");
}

void check_lengths(const at::Tensor& starts, int64_t longest) {
  const auto lengths = starts.diff();
  TORCH_CHECK(lengths.numel() == 0 || lengths.max().item<int64_t>() <= longest,
              "flash attention: a sequence is longer than the longest");
}

void check_keys(const Inputs& in, int64_t longest) {
  if (!in.used) return check_lengths(in.k_ends, longest);
  TORCH_CHECK(in.used->max().item<int64_t>() <= longest && in.used->min().item<int64_t>() > 0,
              "flash attention: a sequence is longer than the longest, or has no keys");
}

/// The tensors of one sequence, in float32: [H, L, P]. Heads of keys and values are repeated.
struct Sequence {
  at::Tensor q, k, v;
  int64_t first_q, count_q, first_k, count_k;
};

at::Tensor heads_of(const at::Tensor& x, int64_t first, int64_t count, int64_t heads) {
  return x.narrow(0, first, count).to(at::kFloat).repeat_interleave(heads / x.size(1), 1).transpose(0, 1);
}

Sequence sequence_of(const Inputs& in, int64_t b) {
  const auto at = [&](const at::Tensor& starts, int64_t i) { return starts[i].item<int64_t>(); };
  const int64_t q = at(in.q_ends, b), k = at(in.k_ends, b), heads = in.q_THP.size(1);
  const int64_t rows = at(in.q_ends, b + 1) - q, keys = in.used ? at(*in.used, b) : at(in.k_ends, b + 1) - k;
  return {heads_of(in.q_THP, q, rows, heads),
          heads_of(in.k_TGP, k, keys, heads),
          heads_of(in.v_TGP, k, keys, heads),
          q,
          rows,
          k,
          keys};
}

// The mask is aligned to the last query and the last key.
at::Tensor scores_of(const Inputs& in, const Sequence& s) {
  auto scores_HLM = at::matmul(s.q, s.k.transpose(1, 2)) * in.scale;
  if (!in.causal) return scores_HLM;
  const int64_t own = s.count_k - s.count_q;
  auto hidden = at::ones({s.count_q, s.count_k}, at::kBool).triu(own + 1);
  if (in.left) hidden.logical_or_(at::ones_like(hidden).tril(own - *in.left - 1));
  return scores_HLM.masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

at::Tensor summed_heads(const at::Tensor& x_HLP, int64_t groups) {
  const auto x_LHP = x_HLP.transpose(0, 1);
  return x_LHP.reshape({x_LHP.size(0), groups, -1, x_LHP.size(2)}).sum(2);
}

using FlashResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FlashResult flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const std::optional<at::Tensor>& starts, const std::optional<at::Tensor>& key_starts, int64_t longest,
                  int64_t longest_key, double dropout, bool causal, bool, std::optional<double> scale,
                  std::optional<int64_t> left, std::optional<int64_t> right, const std::optional<at::Tensor>& used,
                  const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, std::optional<int64_t>) {
  TORCH_CHECK(right.value_or(0) == 0 && left.value_or(0) >= 0, "flash attention: a window of earlier keys alone");
  check_heads(q, "q"), check_heads(k, "k"), check_heads(v, "v");
  TORCH_CHECK(starts && key_starts && scale && dropout == 0, "flash attention: packed sequences without dropout");
  check_starts(*starts), check_starts(*key_starts);
  Inputs in{on_processor(q),           on_processor(k), on_processor(v), on_processor(*starts),
            on_processor(*key_starts), *scale,          causal,          left};
  if (used) check_starts(*used), in.used = on_processor(*used);
  auto out = at::empty(q.sizes(), q.options());
  auto logsumexp = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  launch([in, longest, longest_key, y = on_processor(out), lse = on_processor(logsumexp)] {
    check_lengths(in.q_ends, longest), check_keys(in, longest_key);
    for (int64_t b = 0; b + 1 < in.q_ends.size(0); ++b) {
      const auto s = sequence_of(in, b);
      const auto scores = scores_of(in, s);
      y.narrow(0, s.first_q, s.count_q).copy_(at::matmul(at::softmax(scores, 2), s.v).transpose(0, 1));
      lse.narrow(1, s.first_q, s.count_q).copy_(at::logsumexp(scores, {2}));
    }
  });
  const auto state = at::zeros({2}, q.options().dtype(at::kUInt64));
  return {out, logsumexp, state, at::empty({0}, state.options()), at::empty({0}, q.options())};
}

using FlashGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

FlashGradients flash_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& starts,
                              const at::Tensor& key_starts, int64_t longest, int64_t longest_key, double, bool causal,
                              const at::Tensor&, const at::Tensor&, std::optional<double> scale,
                              std::optional<int64_t> left, std::optional<int64_t>) {
  check_heads(dout, "the gradient"), check_heads(q, "q"), check_heads(k, "k"), check_heads(v, "v"),
      check_heads(out, "the output");
  check_starts(starts), check_starts(key_starts);
  const Inputs in{on_processor(q),          on_processor(k), on_processor(v), on_processor(starts),
                  on_processor(key_starts), *scale,          causal,          left};
  auto dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  launch([in, longest, longest_key, out_THP = on_processor(out), lse_HT = on_processor(logsumexp),
          dout_THP = on_processor(dout), dq_THP = on_processor(dq), dk_TGP = on_processor(dk),
          dv_TGP = on_processor(dv)] {
    check_lengths(in.q_ends, longest), check_lengths(in.k_ends, longest_key);
    for (int64_t b = 0; b + 1 < in.q_ends.size(0); ++b) {
      const auto s = sequence_of(in, b);
      const auto lse = lse_HT.narrow(1, s.first_q, s.count_q).unsqueeze(2);
      const auto probs = at::exp(scores_of(in, s) - lse);
      const int64_t heads = in.q_THP.size(1);
      const auto dy = heads_of(dout_THP, s.first_q, s.count_q, heads),
                 y = heads_of(out_THP, s.first_q, s.count_q, heads);
      const auto dscores = probs * (at::matmul(dy, s.v.transpose(1, 2)) - (dy * y).sum(2, true)) * in.scale;
      dq_THP.narrow(0, s.first_q, s.count_q).copy_(at::matmul(dscores, s.k).transpose(0, 1));
      const auto put = [&](const at::Tensor& to, const at::Tensor& of_heads) {
        to.narrow(0, s.first_k, s.count_k).copy_(summed_heads(of_heads, in.k_TGP.size(1)));
      };
      put(dk_TGP, at::matmul(dscores.transpose(1, 2), s.q));
      put(dv_TGP, at::matmul(probs.transpose(1, 2), dy));
    }
  });
  return {dq, dk, dv};
}

// CUDA's choice for scaled_dot_product_attention(): the memory-efficient kernel, but for float64.
int64_t choose(const at::Tensor& q, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double,
               bool, std::optional<double>, bool) {
  return static_cast<int64_t>(q.scalar_type() == at::kDouble ? sdp::SDPBackend::math
                                                             : sdp::SDPBackend::efficient_attention);
}

std::optional<at::Tensor> mask_of(const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? std::optional(on_processor(*bias)) : std::nullopt;
}

struct Heads {
  at::Tensor q, k, v;
};

using Efficient = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Efficient efficient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::optional<at::Tensor>& bias, bool, double dropout, bool causal,
                    std::optional<double> scale) {
  const auto work = [own = Heads{on_processor(q), on_processor(k), on_processor(v)}, mask = mask_of(bias), dropout,
                     causal, scale] {
    const auto [out, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(own.q, own.k, own.v, dropout, causal, mask, scale);
    return std::vector<at::Tensor>{out, logsumexp};
  };
  const auto results = launched(work, q.device());
  const auto state = at::zeros({}, q.options().dtype(at::kLong));
  return {results[0], results[1], state, state};
}

Efficient efficient_backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& bias, const at::Tensor& out, const at::Tensor& logsumexp,
                             const at::Tensor&, const at::Tensor&, double dropout, std::array<bool, 4> wanted,
                             bool causal, std::optional<double> scale) {
  TORCH_CHECK(!wanted[3], "attention: no gradient of the mask");
  const auto work = [own = Heads{on_processor(q), on_processor(k), on_processor(v)}, y = on_processor(out),
                     lse = on_processor(logsumexp), dy = on_processor(dout), mask = mask_of(bias), dropout, causal,
                     scale] {
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(dy, own.q, own.k, own.v, y, lse,
                                                                                       dropout, causal, mask, scale);
    return std::vector<at::Tensor>{dq, dk, dv};
  };
  const auto results = launched(work, q.device());
  return {results[0], results[1], results[2], at::Tensor()};
}

const at::native::RegisterCUDADispatch<at::native::_fused_sdp_choice_stub_DECLARE_DISPATCH_type> registered_choice(
    at::native::_fused_sdp_choice_stub, &choose);

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_flash_attention_forward", &flash);
  m.impl("_flash_attention_backward", &flash_backward);
  m.impl("_scaled_dot_product_efficient_attention", &efficient);
  m.impl("_scaled_dot_product_efficient_attention_backward", &efficient_backward);
}

}  // namespace evenkeel::simulated_gpu
