#include "scoring/token_sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <span>

#include "base/format/limits.h"
#include "base/plain/error.h"

namespace evenkeel::scoring {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

at::Tensor likeliest_only(const at::Tensor& logits_NV, int64_t count) {
  const auto last_N1 = std::get<0>(logits_NV.topk(std::min(count, logits_NV.size(1)), 1)).slice(1, -1);
  return logits_NV.masked_fill(logits_NV < last_N1, kNothing);
}

/// Divides logits by the temperature, relative to the likeliest token of their row, so that none becomes +infinity. In
/// float32 a small temperature could be 0, and 0 / 0 is NaN.
at::Tensor divided(const at::Tensor& logits_NV, double temperature) {
  const auto below_NV = logits_NV - logits_NV.amax(1, /*keepdim=*/true);
  return (below_NV.to(at::kDouble) / temperature).to(at::kFloat);
}

/// Removes the least likely tokens whose probabilities sum to at most 1 - top_p.
at::Tensor nucleus_only(const at::Tensor& logits_NV, double top_p) {
  const auto [sorted_NV, order_NV] = logits_NV.sort(/*dim=*/1, /*descending=*/false);
  auto goes_NV = sorted_NV.softmax(1).cumsum(1) <= 1 - top_p;
  goes_NV.slice(1, -1).fill_(false);
  return logits_NV.masked_fill(goes_NV.scatter(1, order_NV, goes_NV), kNothing);
}

}  // namespace

void Sampling::check() const {
  limits::check_above_zero("--temperature", temperature);
  limits::check_share("--top-p", top_p);
  limits::check_integer("--top-k-tokens", top_k, 0, limits::kTokens);
}

at::Tensor kept_probabilities(const at::Tensor& logits_NV, const Sampling& sampling) {
  auto logits = logits_NV.to(at::kFloat);
  if (sampling.temperature != 1.0) logits = divided(logits, sampling.temperature);
  if (sampling.top_k > 0) logits = likeliest_only(logits, sampling.top_k);
  if (sampling.top_p < 1.0) logits = nucleus_only(logits, sampling.top_p);
  return logits.softmax(1);
}

int64_t drawn_token(const at::Tensor& probabilities_V, double uniform) {
  const auto contiguous = probabilities_V.contiguous();
  const std::span values(contiguous.const_data_ptr<float>(), static_cast<size_t>(contiguous.numel()));
  double sum = 0;
  for (const float one : values) sum += one;
  const double point = uniform * sum;
  double below = 0;
  int64_t last = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] <= 0) continue;
    last = static_cast<int64_t>(i);
    below += values[i];
    if (point < below) break;
  }
  return last;
}

}  // namespace evenkeel::scoring
