#include "nn/attention/full_attention.h"

#include <ATen/ATen.h>

#include "base/plain/error.h"
#include "nn/attention/attention.h"

namespace evenkeel::nn {
namespace {

/// Adjacent sequences of one length: N sequences of L tokens.
struct EqualSequences {
  int64_t start = 0, count = 0, length = 0;

  /// Returns at most `most` sequences from sequence `b` on, all as long as it.
  static EqualSequences from(std::span<const int64_t> offsets, size_t b, int64_t most) {
    EqualSequences equal{offsets[b], 1, offsets[b + 1] - offsets[b]};
    for (++b; equal.count < most && b + 1 < offsets.size() && offsets[b + 1] - offsets[b] == equal.length; ++b)
      ++equal.count;
    return equal;
  }
  /// Returns them in the layout of at::scaled_dot_product_attention: [N L, H, P] -> [N, H, L, P].
  at::Tensor heads_first(const at::Tensor& x_THP) const {
    return x_THP.narrow(0, start, count * length).unflatten(0, {count, length}).transpose(1, 2);
  }
};

}  // namespace

at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                          std::span<const int64_t> offsets, int64_t most_at_once) {
  EK_CHECK(q_THP.dim() == 3 && q_THP.sizes() == k_THP.sizes() && q_THP.sizes() == v_THP.sizes(), kShape,
           "attention: q has sizes ", q_THP.sizes(), ", k ", k_THP.sizes(), ", v ", v_THP.sizes());
  check_offsets(offsets, q_THP.size(0));
  std::vector<at::Tensor> parts;
  for (size_t b = 0; b + 1 < offsets.size();) {
    const auto equal = EqualSequences::from(offsets, b, most_at_once);
    const auto out_NHLP =
        at::scaled_dot_product_attention(equal.heads_first(q_THP), equal.heads_first(k_THP), equal.heads_first(v_THP));
    parts.push_back(out_NHLP.transpose(1, 2).reshape({equal.count * equal.length, -1}));
    b += static_cast<size_t>(equal.count);
  }
  return at::cat(parts);
}

}  // namespace evenkeel::nn
