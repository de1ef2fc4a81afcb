// The mean of updates whose norms are cut to the median norm of the round. Norm clipping against poisoned updates: Sun,
// Kairouz, Suresh, McMahan, "Can You Really Backdoor Federated Learning?", 2019, arXiv:1911.07963.
#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/lower_median.h"
#include "lora/fixed_point.h"
#include "methods/rules.h"

namespace evenkeel::methods {
namespace {

/// Returns s_c = min(1, m / norm_c) with m the lower median.
std::vector<double> shares_kept(std::span<const double> norms) {
  if (norms.empty()) return {};
  const double median = lower_median({norms.begin(), norms.end()});
  std::vector<double> shares;
  for (const double norm : norms) shares.push_back(norm > median ? median / norm : 1);
  return shares;
}

class ClippedMean : public CombiningRule {
 public:
  explicit ClippedMean(std::span<const double> norms)
      : shares_(shares_kept(norms)),
        cuts_(std::any_of(shares_.begin(), shares_.end(), [](double share) { return share < 1; })) {}

  /// Adds up p_c s_c theta_c, and what the cut updates leave of `before`: 1 - sum_c p_c s_c, per matrix of a stack
  /// where matrices have weights.
  at::Tensor combine(const Parts& parts) const override {
    const size_t clients = parts.values.size();
    EK_CHECK(clients == shares_.size(), kInternal, "aggregate: ", clients, " values of ", shares_.size(), " updates");
    const bool adds_before = cuts_ && parts.before.defined();
    const lora::Term rest = adds_before ? rest_of(parts) : lora::Term{};
    const auto term = [&](size_t i) {
      if (i == clients) return rest;
      lora::Term own{parts.values[i], shares_[i] * (parts.weights_E.empty() ? parts.weights[i] : 1)};
      if (!parts.weights_E.empty()) own.weights_E = parts.weights_E[i];
      return own;
    };
    const size_t terms = clients + (adds_before ? 1 : 0);
    return lora::fixed_point_sum({.here = terms, .global_term_count = terms, .at = term, .who = [&](size_t i) {
                                    return i == clients ? "the state" : parts.who(i);
                                  }});
  }

 private:
  lora::Term rest_of(const Parts& parts) const {
    if (parts.weights_E.empty()) {
      double kept = 0;
      for (size_t i = 0; i < shares_.size(); ++i) kept += parts.weights[i] * shares_[i];
      return {parts.before, 1 - kept};
    }
    auto lost_E = at::zeros_like(parts.weights_E.front());
    for (size_t i = 0; i < shares_.size(); ++i) lost_E += parts.weights_E[i] * (1 - shares_[i]);
    return {.values = parts.before, .weights_E = lost_E};
  }

  const std::vector<double> shares_;
  const bool cuts_;
};

}  // namespace

std::unique_ptr<CombiningRule> clipped_mean_rule(std::span<const double> norms) {
  return std::make_unique<ClippedMean>(norms);
}

}  // namespace evenkeel::methods
