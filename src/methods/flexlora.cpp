// FlexLoRA: the mean of the clients' full updates, cut back to each client's rank by SVD. Bai et al., "Federated
// Fine-tuning of Large Language Models under Heterogeneous Tasks and Client Resources", NeurIPS 2024, arXiv:2402.11505.
//
//   client   trains A_c, B_c of rank r_c
//   server   dW = sum_c p_c s_c B_c A_c = U S V^T by thin QRs of the stacked factors and a small core; dW itself is
//            formed only where the summed rank is above a side of W (lora/algebra.h)
//   down     A_r = V^T[:r], B_r = U[:, :r] S[:r] / s_r, so that s_r B_r A_r is the best approximation of rank r
//
// dW replaces the last global update and contains it. A client cannot return a direction beyond its rank, so such a
// direction fades with the weight of these clients. This is a property of the method.
#include <ATen/ATen.h>

#include <algorithm>

#include "base/random/random.h"
#include "lora/algebra.h"
#include "methods/initial_state.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

/// Returns A at a higher rank: the new rows are orthonormal to the first `own` ones and to each other, as those of the
/// SVD of the whole matrix. Rows beyond the width are zero.
/// \param a  [*, in]; rows from `own` on are not read
at::Tensor with_orthonormal_rows(const at::Tensor& a, int64_t own, int64_t rank, RandomStream stream) {
  const int64_t width = a.size(1), more = std::max<int64_t>(0, std::min(rank, width) - own);
  auto draw = at::empty({width, more}, at::kFloat);
  stream.fill_normal({draw.mutable_data_ptr<float>(), static_cast<size_t>(draw.numel())}, 1.0);
  const auto rows = a.narrow(0, 0, own);
  const auto q = std::get<0>(at::linalg_qr(at::cat({rows.t().to(at::kDouble), draw.to(at::kDouble)}, 1)));
  auto wide = at::zeros({rank, width}, a.options());
  wide.narrow(0, 0, own).copy_(rows);
  wide.narrow(0, own, more).copy_(q.narrow(1, own, more).t());
  return wide;
}

/// Returns the factors at a higher rank. B is zero beyond the own rank of a matrix and A is not, so that these
/// components train in the next round.
lora::LoraFactors at_rank(const lora::LoraFactors& best, int64_t rank, const std::string& site,
                          const ServerView& server, int64_t round) {
  auto wide = lora::padded(best, rank);
  const int64_t matrices = best.a.dim() == 3 ? best.a.size(0) : 1;
  const auto ranks = best.ranks.defined() ? best.ranks : at::full({matrices}, best.rank(), at::kLong);
  if (ranks.eq(rank).all().item<bool>()) return wide;
  wide.a = wide.a.clone();
  const auto rows = wide.a.view({matrices, rank, -1});
  for (int64_t e = 0; e < matrices; ++e)
    rows[e].copy_(with_orthonormal_rows(
        rows[e].clone(), ranks[e].item<int64_t>(), rank,
        {server.seed, concat("flexlora rows of ", site), static_cast<uint64_t>(round), static_cast<uint64_t>(e)}));
  return wide;
}

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
    for (auto& [site, factors] : next.global.adapters)
      factors = at_rank(best.extract(site).mapped(), factors.rank(), site, server, state.round);
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
                                 .rows_by_gradients = true,
                                 .by_site = true});
}

}  // namespace evenkeel::methods
