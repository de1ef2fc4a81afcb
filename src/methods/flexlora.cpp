// FlexLoRA: the mean of the clients' full updates, cut back to each client's rank by SVD. Bai et al., "Federated
// Fine-tuning of Large Language Models under Heterogeneous Tasks and Client Resources", NeurIPS 2024, arXiv:2402.11505.
//
//   client   trains A_c, B_c of rank r_c
//   server   dW = sum_c p_c s_c B_c A_c = U S V^T, never formed: thin QRs of the stacked factors and a small core
//   down     A_r = V^T[:r], B_r = U[:, :r] S[:r] / s_r, so that s_r B_r A_r is the best approximation of rank r
//
// dW replaces the last global update and contains it. A client cannot return a direction beyond its rank, so such a
// direction fades with the weight of these clients. This is a property of the method.
#include <ATen/ATen.h>

#include "lora/algebra.h"
#include "methods/initial_state.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

class FlexLora : public FederatedMethod {
 public:
  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    for (auto& [site, factors] : setup.adapters) {
      factors.scaling = view.scale.of(factors.rank());
      factors.b.div_(factors.scaling);
    }
    return setup;
  }

  /// Creates the first state: one A for all clients, cut to their rank, and B = 0; or the triplets of the start.
  ServerState initialize(const ServerView& server) const override {
    ServerState state;
    state.global.adapters = first_svd_adapters(server);
    return state;
  }

  lora::Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView&) const override {
    lora::Payload payload;
    for (const auto& [site, factors] : state.global.adapters)
      payload.adapters[site] = lora::truncated(factors, client.rank);
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    ServerState next = state;
    auto best = lora::best_factors(parts_of(server.sites, uploads.each()), round.weights,
                                   [&](const at::Tensor& s) { return std::min(server.rank, s.size(0)); });
    // Pads with zeros if the matrix has fewer singular values than the rank.
    for (auto& [site, factors] : next.global.adapters) {
      factors = lora::padded(best.extract(site).mapped(), factors.rank());
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
                                 .needs_individuals = true,
                                 .why_single = "multiplies the factors of each client",
                                 .rows_by_gradients = true});
}

}  // namespace evenkeel::methods
