// FLoRIST: singular value thresholding of the stacked update. Ramesh and Dass, "FLoRIST: Singular Value Thresholding
// for Efficient and Accurate Federated Fine-Tuning of Large Language Models", 2025, arXiv:2506.09199.
//
//   server   B_s = [B_c],  A_s = [p_c s_c A_c],  B_s A_s = U S V^T through thin QRs and a small core
//            p = smallest number with  sum_{i<=p} S_i^2 >= tau sum_i S_i^2,  for each module (each expert) by itself
//            B_g = U[:, :p] S[:p],  A_g = V^T[:p]
//   paper    (its Algorithm 1) everybody merges B_g A_g into the base, clients train fresh adapters of rank r_c
//   code     (as released) clients cut or zero-pad B_g, A_g to rank r_c and go on training them; the base never changes
#include <ATen/ATen.h>

#include <array>

#include "base/random/random.h"
#include "lora/algebra.h"
#include "lora/payload.h"
#include "methods/initial_state.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

enum class Mode { kPaper, kCode };
constexpr auto names(Mode) {
  return std::array{config::EnumName<Mode>{"paper", Mode::kPaper}, config::EnumName<Mode>{"code", Mode::kCode}};
}

struct Config {
  Mode mode = Mode::kPaper;
  double tau = 0.9;
  int64_t max_rank = 0;
  void visit(auto& field) {
    field("mode", mode, "paper (merge, then train new adapters) or code (continue with the thresholded adapters)");
    field("tau", tau, "share of the squared singular values that is kept, in (0, 1]; 1: FLoRA");
    field("max_rank", max_rank, "largest number of components kept per module; 0: limited by tau only");
  }

  void resolve(const config::Table& table) const {
    table.check(tau > 0 && tau <= 1, "tau", tau, "greater than 0, at most 1");
    table.check(max_rank >= 0, "max_rank", max_rank, "0 or more");
  }
};

constexpr const char* kMeanRank = "mean_rank";

/// Returns p of a matrix with singular values `s`, [k]; 0 if the update is zero.
int64_t rank_above_tau(const at::Tensor& s, const Config& config) {
  const auto energy = s.square().cumsum(0), total = energy[-1];
  if (total.item<double>() == 0) return 0;
  // For tau = 1, keep all components: squares of small components vanish in the sum before the components do.
  const auto rank = config.tau < 1 ? energy.lt(total * config.tau).sum() + 1 : s.gt(0).sum();
  const int64_t max_rank = config.max_rank > 0 ? std::min(config.max_rank, s.size(0)) : s.size(0);
  return std::min(rank.item<int64_t>(), max_rank);
}

/// Returns the mean of p over all modules. Each expert counts as one module.
double mean_rank(const lora::AdapterState& adapters) {
  double sum = 0, modules = 0;
  for (const auto& [site, factors] : adapters) {
    const bool stack = factors.ranks.defined();
    sum += stack ? factors.ranks.sum().item<double>() : static_cast<double>(factors.rank());
    modules += stack ? static_cast<double>(factors.ranks.numel()) : 1.0;
  }
  return modules > 0 ? sum / modules : 0;
}

class Florist : public FederatedMethod {
 public:
  explicit Florist(const Config& config) : config_(config) {}

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = empty_setup(view);
    const double scaling = view.scale.of(view.client.rank);
    if (config_.mode == Mode::kPaper) {
      if (view.client.trains)
        setup.adapters = lora::make_adapters(view.sites, view.client.rank, scaling, fresh_seed(view));
      return setup;
    }
    // Components beyond the rank are lost. Padding with zeros gets no gradient and stays zero.
    for (const auto& [site, factors] : download.adapters)
      setup.adapters[site] = {.a = factors.a.clone(), .b = factors.b / scaling, .scaling = scaling};
    return setup;
  }

  /// Creates the state of code mode: all clients start from the same A, cut to their rank, and B = 0.
  ServerState initialize(const ServerView& server) const override {
    ServerState state;
    if (config_.mode == Mode::kPaper)
      state.common.base_change = first_base_change(server);
    else
      state.global.adapters = first_svd_adapters(server);
    return state;
  }

  lora::Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView&) const override {
    lora::Payload payload{.base_delta = state.global.base_delta};
    for (const auto& [site, factors] : state.global.adapters)
      payload.adapters[site] = lora::padded(lora::truncated(factors, client.rank), client.rank);
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    ServerState next = state;
    const bool paper = config_.mode == Mode::kPaper;
    auto& adapters = paper ? next.global.base_delta : next.global.adapters;
    adapters = lora::best_factors(
        parts_of(server.sites, uploads.each()), round.weights,
        [&](const at::Tensor& s) { return rank_above_tau(s, config_); },
        [&](const lora::LoraFactors& made) {
          return paper ? lora::rounded_for_transport(made, server.transport) : made;
        });
    next.memory[kMeanRank] = at::scalar_tensor(mean_rank(adapters), at::kDouble);
    return next;
  }

  /// Returns `mean_rank`: the mean of p over modules.
  TensorMap diagnostics(const ServerState& state) const override { return state.memory; }

 private:
  static uint64_t fresh_seed(const ClientView& view) {
    return RandomStream(view.seed, "fresh-adapters", static_cast<uint64_t>(view.round),
                        static_cast<uint64_t>(view.client.id))
        .next_u64();
  }

  const Config config_;
};

}  // namespace

MethodEntry florist() {
  return method_entry<Florist, Config>({.name = "florist",
                                        .title = "FLoRIST",
                                        .paper = "Ramesh, Dass: FLoRIST, 2025, arXiv:2506.09199",
                                        .family = MethodFamily::kRank,
                                        .exact = false,
                                        .needs_experts = false,
                                        .changes_base = true,
                                        .needs_individuals = true,
                                        .why_single = "stacks the factors of each client",
                                        .rows_by_gradients = true,
                                        .by_site = true});
}

}  // namespace evenkeel::methods
