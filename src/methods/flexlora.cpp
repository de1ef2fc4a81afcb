// FlexLoRA: the mean of the clients' full updates, cut back to each client's rank by SVD. Bai et al., "Federated
// Fine-tuning of Large Language Models under Heterogeneous Tasks and Client Resources", NeurIPS 2024, arXiv:2402.11505.
//
//   client   trains A_c, B_c of rank r_c
//   server   dW = sum_c p_c s_c B_c A_c = U S V^T, never formed: thin QRs of the stacked factors and a small core
//   down     A_r = V^T[:r], B_r = U[:, :r] S[:r] / s_r, so that s_r B_r A_r is the best approximation of rank r
//
// dW replaces the last global update, which it contains. A direction beyond a client's rank is missing from what that
// client returns, so it fades with the share of those who cannot hold it: inherent to the method.
#include <ATen/ATen.h>

#include "lora/algebra.h"
#include "methods/initial_state.h"
#include "methods/method_registry.h"

namespace evenkeel {
namespace {

class FlexLora : public FederatedMethod {
 public:
  LocalSetup prepare(const Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    for (auto& [site, factors] : setup.adapters) {
      factors.scaling = view.scale.of(factors.rank());
      factors.b.div_(factors.scaling);
    }
    return setup;
  }

  /// All clients start from one A, cut to their rank, and B = 0, or from the best of a start that their rank holds.
  ServerState initialize(const ServerView& server) const override {
    ServerState state;
    state.global.adapters = first_best_adapters(server);
    return state;
  }

  Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView&) const override {
    Payload payload;
    for (const auto& [site, factors] : state.global.adapters) payload.adapters[site] = truncated(factors, client.rank);
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    ServerState next = state;
    auto best = best_factors(parts_of(server.sites, uploads.each()), round.weights,
                             [&](const at::Tensor& s) { return std::min(server.rank, s.size(0)); });
    // Zeros fill up what a small matrix cannot have.
    for (auto& [site, factors] : next.global.adapters) {
      factors = padded(best.extract(site).mapped(), factors.rank());
    }
    return next;
  }
};

}  // namespace

MethodEntry flexlora() {
  return method_entry<FlexLora>({.name = "flexlora",
                                 .title = "FlexLoRA",
                                 .paper = "Bai et al.: FlexLoRA, NeurIPS 2024, arXiv:2402.11505",
                                 .family = MethodFamily::kRank,
                                 .exact = false,
                                 .needs_experts = false,
                                 .needs_individuals = true});
}

}  // namespace evenkeel
