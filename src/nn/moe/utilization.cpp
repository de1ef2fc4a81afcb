#include "nn/moe/utilization.h"

#include <ATen/ATen.h>

#include "base/plain/error.h"

namespace evenkeel::nn {
namespace {

double sum_of(const at::Tensor& u) { return u.sum().item<double>(); }

}  // namespace

at::Tensor utilization(std::span<const at::Tensor> counts, std::span<const int64_t> tokens,
                       std::span<const double> weights) {
  EK_CHECK(!counts.empty() && counts.size() == tokens.size() && counts.size() == weights.size(), kShape,
           "utilization of ", counts.size(), " counts, ", tokens.size(), " token numbers and ", weights.size(),
           " weights, allowed: as many of each, at least one");
  auto u = at::zeros_like(counts[0], at::kDouble);
  for (size_t c = 0; c < counts.size(); ++c) {
    EK_CHECK(tokens[c] > 0, kData, "utilization: client ", c, " routed ", tokens[c], " tokens, allowed: 1 or more");
    u += counts[c].to(at::kDouble) * (weights[c] / static_cast<double>(tokens[c]));
  }
  return u;
}

double entropy(const at::Tensor& u) {
  const auto wide = u.to(at::kDouble);
  const double total = sum_of(wide);
  return total > 0 ? entropy_unnormalized(wide / total) : 0.0;
}

double entropy_unnormalized(const at::Tensor& u) {
  const auto wide = u.to(at::kDouble);
  return -at::xlogy(wide, wide).sum().item<double>();
}

double gini(const at::Tensor& u) {
  const auto sorted = std::get<0>(u.to(at::kDouble).sort());
  const double total = sum_of(sorted);
  if (total <= 0) return 0.0;
  const auto m = static_cast<double>(sorted.numel());
  const auto rank = at::arange(1, sorted.numel() + 1, sorted.options());
  return 2.0 * sum_of(rank * sorted) / (m * total) - (m + 1.0) / m;
}

int64_t dead_experts(const at::Tensor& u) { return (u == 0).sum().item<int64_t>(); }

int64_t nearly_dead_experts(const at::Tensor& u) {
  const auto wide = u.to(at::kDouble);
  const double balanced = sum_of(wide) / static_cast<double>(wide.numel());
  return ((wide == 0) | (wide < balanced / 10)).sum().item<int64_t>();
}

}  // namespace evenkeel::nn
