#include "nn/engine/pass.h"

#include <ATen/ATen.h>

namespace evenkeel::nn {
namespace {

/// Returns the row of each sequence's last token, [B].
at::Tensor last_rows(std::span<const int64_t> offsets) {
  std::vector<int64_t> rows;
  for (size_t b = 1; b < offsets.size(); ++b) rows.push_back(offsets[b] - 1);
  return at::tensor(rows, at::kLong);
}

}  // namespace

Pass::Pass(const PassInput& input) : in_(input) {
  if (in_.last_only) last_rows_B_ = last_rows(in_.batch.offsets).to(in_.device);  // before the layers: it waits
}

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
