// FLoRA: stacking-based aggregation without noise. Wang et al., "FLoRA: Federated Fine-Tuning Large Language Models
// with Heterogeneous Low-Rank Adaptations", NeurIPS 2024, arXiv:2409.05976.
//
//   client   fresh A_c, B_c = 0 of rank r_c on the base with all merges so far
//   server   B = [B_1 ... B_C],  A = [p_1 s_1 A_1; ...; p_C s_C A_C],  so  B A = sum_c p_c s_c B_c A_c
//   all      W <- W + B A, participants or not; no adapter survives a round
#include <ATen/ATen.h>

#include <array>

#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "base/random/random.h"
#include "lora/algebra.h"
#include "methods/initial_state.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

enum class FreshInit { kOwn, kShared };
constexpr auto names(FreshInit) {
  return std::array{config::EnumName<FreshInit>{"own", FreshInit::kOwn},
                    config::EnumName<FreshInit>{"shared", FreshInit::kShared}};
}

struct Config {
  FreshInit fresh_init = FreshInit::kOwn;
  void visit(auto& field) {
    field("fresh_init", fresh_init,
          "A of each round: own (drawn by each client) or shared (one draw, truncated to each client's rank)");
  }
};

/// Returns the seed of a round's fresh A. With `shared`, round 0 uses the same draw as the other methods.
uint64_t fresh_seed(FreshInit init, const ClientView& view) {
  const auto round = static_cast<uint64_t>(view.round), client = static_cast<uint64_t>(view.client.id);
  if (init == FreshInit::kOwn) return RandomStream(view.seed, "fresh-adapters", round, client).next_u64();
  return round == 0 ? view.seed : RandomStream(view.seed, "fresh-adapters", round).next_u64();
}

class Flora : public FederatedMethod {
 public:
  explicit Flora(const Config& config) : config_(config) {}

  /// Returns the setup of a client. An evaluation has no adapter, only the merged base.
  LocalSetup prepare(const lora::Payload&, const ClientView& view) const override {
    auto setup = empty_setup(view);
    if (!view.client.trains) return setup;
    const int64_t rank = view.client.rank, drawn = config_.fresh_init == FreshInit::kOwn ? rank : view.scale.rank;
    for (auto& [site, factors] :
         lora::make_adapters(view.sites, drawn, view.scale.of(rank), fresh_seed(config_.fresh_init, view)))
      setup.adapters[site] = lora::truncated(factors, rank);
    return setup;
  }

  ServerState initialize(const ServerView& server) const override {
    ServerState state;
    state.common.base_change = first_base_change(server);
    return state;
  }

  lora::Payload broadcast(const ServerState& state, const ClientProfile&, const RoundView&) const override {
    return {.base_delta = state.global.base_delta};
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    ServerState next = state;
    const auto updates = uploads.each();
    for (const auto& [site, shape] : server.sites) {
      std::vector<int64_t> ranks;
      for (const auto& update : updates) ranks.push_back(update.sent(site).rank());
      next.global.base_delta[site] = lora::side_by_side(ranks, [&](size_t c) {
        return lora::rounded_for_transport(lora::weighted(updates[c].factors(site), round.weights[c]),
                                           server.transport);
      });
      release_mapped_pages();
    }
    return next;
  }

 private:
  const Config config_;
};

}  // namespace

MethodEntry flora() {
  return method_entry<Flora, Config>({.name = "flora",
                                      .title = "FLoRA",
                                      .paper = "Wang et al.: FLoRA, NeurIPS 2024, arXiv:2409.05976",
                                      .family = MethodFamily::kRank,
                                      .exact = true,
                                      .needs_experts = false,
                                      .changes_base = true,
                                      .needs_individuals = true,
                                      .why_single = "sends the factors of each client to all others",
                                      .rows_by_gradients = true,
                                      .by_site = true});
}

}  // namespace evenkeel::methods
