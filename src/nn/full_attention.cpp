#include "nn/full_attention.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace evenkeel {
namespace {

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::span<const int64_t> offsets) {
  EK_CHECK(q.dim() == 3 && q.sizes() == k.sizes() && q.sizes() == v.sizes(), kShape, "attention: q has sizes ",
           q.sizes(), ", k ", k.sizes(), ", v ", v.sizes());
  EK_CHECK(!offsets.empty() && offsets.front() == 0 && offsets.back() == q.size(0), kShape,
           "attention: offsets end at ", offsets.empty() ? -1 : offsets.back(), ", there are ", q.size(0), " tokens");
  for (size_t b = 0; b + 1 < offsets.size(); ++b)
    EK_CHECK(offsets[b] < offsets[b + 1], kShape, "attention: sequence ", b, " is empty");
}

// One sequence as the library's attention wants it. [L, H, P] -> [1, H, L, P]
at::Tensor heads_first(const at::Tensor& x_THP, int64_t start, int64_t length) {
  return x_THP.narrow(0, start, length).transpose(0, 1).unsqueeze(0);
}

}  // namespace

at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                          std::span<const int64_t> offsets) {
  check(q_THP, k_THP, v_THP, offsets);
  std::vector<at::Tensor> parts;
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t start = offsets[b], length = offsets[b + 1] - start;
    const auto out = at::scaled_dot_product_attention(
        heads_first(q_THP, start, length), heads_first(k_THP, start, length), heads_first(v_THP, start, length));
    parts.push_back(out.squeeze(0).transpose(0, 1).reshape({length, -1}));
  }
  return at::cat(parts);
}

}  // namespace evenkeel
