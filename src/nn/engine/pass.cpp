#include "nn/engine/pass.h"

namespace evenkeel::nn {

at::Tensor Pass::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                           const AttentionSteps& steps, bool only_last) const {
  if (!in_.cache) return packed(q, k, v, steps);
  return cached(apply_steps(q, steps.q), apply_steps(k, steps.k), apply_steps(v, steps.v), layer, steps, only_last);
}

void Pass::record(const std::string& layer, const at::Tensor& logits_RE, const at::Tensor& experts_RK) {
  if (in_.routing.empty()) return;
  const auto logits_TE = logits_RE.requires_grad() ? of_tokens(logits_RE) : at::Tensor();
  auto into = in_.routing.begin();
  int64_t begin = 0;
  for (const auto& end : in_.batch.micro_batch_ends()) {
    auto& stats = (*into++)[layer];
    stats = {logits_TE.defined() ? logits_TE.slice(0, begin, end.tokens) : at::Tensor(), {}, end.tokens - begin};
    begin = end.tokens;
  }
  count(layer, experts_RK);
}

}  // namespace evenkeel::nn
