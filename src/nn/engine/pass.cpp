#include "nn/engine/pass.h"

#include <ATen/ATen.h>

#include "base/system/transfers.h"

namespace evenkeel::nn {
namespace {

/// Returns the row of each sequence's last token, [B].
at::Tensor last_rows(std::span<const int64_t> offsets, c10::Device device) {
  std::vector<int64_t> rows;
  for (size_t b = 1; b < offsets.size(); ++b) rows.push_back(offsets[b] - 1);
  return uploaded(rows, device);
}

}  // namespace

Pass::Pass(const PassInput& input) : in_(input) {
  if (in_.last_only) last_rows_B_ = last_rows(in_.batch.offsets, in_.device);
}

at::Tensor Pass::attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                           const AttentionSteps& steps, bool only_last) const {
  return in_.cache ? cached(q, k, v, layer, steps, only_last) : packed(q, k, v, steps);
}

NormedSum Pass::add_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D, double eps,
                         bool /*for_products*/) const {
  const auto sum_RD = x_RD + added_RD;
  return {sum_RD, rms_norm(sum_RD, weight_D, eps)};
}

void Pass::record(const std::string& layer, const at::Tensor& logits_RE, const at::Tensor& experts_RK) {
  if (in_.routing.empty()) return;
  const auto logits_TE = in_.records_logits && logits_RE.requires_grad() ? of_tokens(logits_RE) : at::Tensor();
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
