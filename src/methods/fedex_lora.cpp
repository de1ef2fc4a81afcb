// FedEx-LoRA: exact aggregation by putting the residual into the base. Singhal, Ponkshe, Vepakomma, "FedEx-LoRA: Exact
// Aggregation for Federated and Efficient Fine-Tuning of Foundation Models", ACL 2025, arXiv:2410.09432.
//
//   client   trains A_c, B_c (equal ranks) on a base that holds all residuals so far
//   server   A = sum_c p_c A_c,  B = sum_c p_c B_c,  res = sum_c p_c B_c A_c - B A,  W <- W + s res
//
// The residual is a covariance, sum_c p_c (B_c - B) (A_c - X) for any X, because sum_c p_c (B_c - B) = 0. With X = A_C
// the term of the last client is zero. The factors have rank (C - 1) r, and no large products are subtracted.
#include <ATen/ATen.h>

#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "lora/algebra.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

class FedExLora : public FederatedMethod {
 public:
  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    auto next = FederatedMethod::aggregate(server, state, round, uploads);
    if (uploads.size() < 2) return next;
    for (const auto& [site, mean] : next.global.adapters) {
      next.global.base_delta[site] = scaled_residual(site, mean, round.weights, uploads.each(), server.transport);
      release_mapped_pages();
    }
    return next;
  }

 private:
  /// Computes s res as factors: B = [s p_c (B_c - mean B)], A = [A_c - A_C], c < C.
  static lora::LoraFactors scaled_residual(const std::string& site, const lora::LoraFactors& mean,
                                           std::span<const double> weights, std::span<const ClientUpdate> updates,
                                           lora::TransportDtype transport) {
    const auto last = updates.back().factors(site);
    const std::vector<int64_t> ranks(updates.size() - 1, last.rank());
    return lora::side_by_side(ranks, [&](size_t c) {
      const auto own = updates[c].factors(site);
      return lora::rounded_for_transport({.a = own.a - last.a, .b = (own.b - mean.b) * (weights[c] * mean.scaling)},
                                         transport);
    });
  }
};

}  // namespace

MethodEntry fedex_lora() {
  return method_entry<FedExLora>({.name = "fedex-lora",
                                  .title = "FedEx-LoRA",
                                  .paper = "Singhal, Ponkshe, Vepakomma: FedEx-LoRA, ACL 2025, arXiv:2410.09432",
                                  .family = MethodFamily::kHomogeneous,
                                  .exact = true,
                                  .needs_experts = false,
                                  .changes_base = true,
                                  .needs_individuals = true,
                                  .why_single = "multiplies the factors of each client",
                                  .rows_by_gradients = true,
                                  .by_site = true});
}

}  // namespace evenkeel::methods
