#include "nn/attention/full_attention.h"

#include <ATen/ATen.h>

#include "base/plain/error.h"
#include "nn/attention/attention.h"

namespace evenkeel::nn {
namespace {

// Returns one sequence in the layout of at::scaled_dot_product_attention: [L, H, P] -> [1, H, L, P].
at::Tensor heads_first(const at::Tensor& x_THP, int64_t start, int64_t length) {
  return x_THP.narrow(0, start, length).transpose(0, 1).unsqueeze(0);
}

}  // namespace

at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                          std::span<const int64_t> offsets) {
  EK_CHECK(q_THP.dim() == 3 && q_THP.sizes() == k_THP.sizes() && q_THP.sizes() == v_THP.sizes(), kShape,
           "attention: q has sizes ", q_THP.sizes(), ", k ", k_THP.sizes(), ", v ", v_THP.sizes());
  check_offsets(offsets, q_THP.size(0));
  std::vector<at::Tensor> parts;
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t start = offsets[b], length = offsets[b + 1] - start;
    const auto out = at::scaled_dot_product_attention(
        heads_first(q_THP, start, length), heads_first(k_THP, start, length), heads_first(v_THP, start, length));
    parts.push_back(out.squeeze(0).transpose(0, 1).reshape({length, -1}));
  }
  return at::cat(parts);
}

}  // namespace evenkeel::nn
