// HetLoRA: heterogeneous ranks with self-pruning and sparsity-weighted aggregation. Cho et al., "Heterogeneous LoRA for
// Federated Fine-tuning of On-Device Foundation Models", EMNLP 2024, arXiv:2401.06432. Readings: docs/ambiguities.md.
//
//   client   L = L_task + lambda sum_modules |B[:, q:]| |A[q:, :]|,   q = floor(gamma r_c)
//            when that tail shrank in the round: r_c <- max(rank_min, q)
//   server   w_c = S_c / sum S, S_c = |B_c A_c|;   A = sum_c w_c pad(A_c), B = sum_c w_c pad(B_c), r_max high
//   down     the first r_c rows of A and columns of B
//
// Factors on the server and in broadcasts have scale 1: each is multiplied by sqrt(s_c), and the client divides by it.
// A component that only clients of total weight w have shrinks by w^2 in the product. This is a property of the method.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "lora/algebra.h"
#include "lora/equal_factors.h"
#include "lora/fixed_point.h"
#include "methods/method_registry.h"
#include "nn/dense/stacked.h"

namespace evenkeel::methods {
namespace {

/// What becomes of components that no participant of a round holds.
enum class UnusedRank {
  kZero,  ///< padding makes them zero, after which they have no gradient and stay zero
  kKeep,  ///< they stay as they are
};
constexpr auto names(UnusedRank) {
  return std::array{config::EnumName<UnusedRank>{"zero", UnusedRank::kZero},
                    config::EnumName<UnusedRank>{"keep", UnusedRank::kKeep}};
}

struct Config {
  double gamma = 0.99;
  double lambda = 1e-3;
  bool prune = true;
  int64_t rank_min = 1;
  UnusedRank unused_rank = UnusedRank::kZero;

  void visit(auto& field) {
    field("gamma", gamma, "share of the rank before the tail, in (0, 1); the tail begins at floor(gamma r)");
    field("lambda", lambda, "weight of the tail's norm in the loss, 0 or more");
    field("prune", prune, "clients reduce their rank when the norm of the tail has decreased");
    field("rank_min", rank_min, "smallest rank after pruning, 1 or more");
    field("unused_rank", unused_rank,
          "components beyond the ranks of a round's participants: zero (padded, as in the paper: they never train "
          "again) or keep");
  }

  void resolve(const config::Table& table) const {
    table.check(gamma > 0 && gamma < 1, "gamma", gamma, "between 0 and 1");
    table.check(lambda >= 0, "lambda", lambda, "0 or more");
    table.check(rank_min >= 1, "rank_min", rank_min, "1 or more");
  }
};

constexpr const char* kRank = "rank";
std::string rank_key(int64_t client) { return concat("rank/", client); }

/// Returns the Frobenius norm of each module's matrix, or of each expert's matrix, in a stack.
at::Tensor module_norms(const at::Tensor& tail) { return tail.flatten(-2).norm(2, -1); }

class HetLora : public FederatedMethod {
 public:
  explicit HetLora(const Config& config) : config_(config) {}

  // --- client ---

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    for (auto& [site, factors] : setup.adapters) factors = lora::rescaled(factors, view.scale.of(factors.rank()));
    return setup;
  }

  at::Tensor penalty(const StepView& step) const override {
    if (config_.lambda == 0) return {};
    return config_.lambda * tail(step.setup.adapters);
  }

  lora::Payload upload(const lora::Payload& download, const LocalSetup& setup, const nn::RoutingByLayer& counts,
                       const ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    const int64_t rank = setup.adapters.begin()->second.rank();
    const int64_t new_rank = config_.prune && shrank(download.adapters, payload.adapters) ? pruned(rank) : rank;
    for (auto& [site, factors] : payload.adapters) factors = lora::truncated(factors, new_rank);
    payload.extras[kRank] = at::scalar_tensor(new_rank, at::kInt);
    return payload;
  }

  // --- server ---

  /// Checks that the reported rank equals the rank of the factors.
  void check_upload(const lora::Payload& upload, const ClientProfile&) const override {
    const auto rank = upload.extras.at(kRank).item<int64_t>();
    for (const auto& [site, factors] : upload.adapters)
      EK_CHECK(factors.rank() == rank, kData, site, " is of rank ", factors.rank(), ", said to be pruned to ", rank);
  }

  ServerState initialize(const ServerView& server) const override {
    auto state = FederatedMethod::initialize(server);
    for (auto& [site, factors] : state.global.adapters) factors = lora::rescaled(factors, 1.0);
    return state;
  }

  int64_t rank_of(const ServerState& state, const ClientProfile& client) const override {
    const auto known = state.memory.find(rank_key(client.id));
    return known == state.memory.end() ? client.rank : known->second.item<int64_t>();
  }

  lora::Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView&) const override {
    const int64_t rank = client.trains ? rank_of(state, client) : client.rank;
    lora::Payload payload;
    for (const auto& [site, factors] : state.global.adapters) payload.adapters[site] = lora::truncated(factors, rank);
    return payload;
  }

  ServerState aggregate(const ServerView&, const ServerState& state, const RoundView&,
                        const Uploads& uploads) const override {
    ServerState next = state;
    for (const auto& update : uploads.each())
      next.memory[rank_key(update.client.id)] = update.extra(kRank).to(at::kLong);
    const auto weights = norm_weights(state, uploads.each());
    for (auto& [site, factors] : next.global.adapters) {
      std::vector<at::Tensor> a, b;
      for (const auto& update : uploads.each()) {
        const auto wide = at_full_rank(update.sent(site), factors.rank());
        a.push_back(wide.a);
        b.push_back(wide.b);
      }
      const auto before = factors;
      factors.a = lora::weighted_mean(a, weights);
      factors.b = lora::weighted_mean(b, weights);
      if (config_.unused_rank == UnusedRank::kKeep) keep_from(largest_rank(uploads.each(), site), before, factors);
      release_mapped_pages();
    }
    return next;
  }

  /// Returns `rank/<client>`: the rank to which each client has pruned itself.
  TensorMap diagnostics(const ServerState& state) const override {
    TensorMap result;
    for (const auto& [name, tensor] : state.memory)
      if (name.starts_with("rank/")) result[name] = tensor;
    return result;
  }

 private:
  /// Returns q. It uses floor because round(0.99 r) is r for every rank up to 50, which would leave the tail empty.
  int64_t head(int64_t rank) const {
    return static_cast<int64_t>(std::floor(config_.gamma * static_cast<double>(rank)));
  }
  int64_t pruned(int64_t rank) const { return std::min(rank, std::max(config_.rank_min, head(rank))); }

  /// Returns the sum over modules of |B[:, q:]| |A[q:, :]|. The result is differentiable.
  at::Tensor tail(const lora::AdapterState& adapters) const {
    at::Tensor sum;
    for (const auto& sites : lora::equal_factors(adapters)) {
      const int64_t rank = sites.a.front().size(-2), q = head(rank);
      const auto a = nn::stacked_slices(sites.a, -2, q, rank - q), b = nn::stacked_slices(sites.b, -1, q, rank - q);
      const auto part = (module_norms(b) * module_norms(a)).sum();
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  }

  /// Returns whether the tail shrank in the round. In the first round B is zero, so no client prunes. `before` has
  /// scale 1, and a tail is proportional to 1 / scale.
  bool shrank(const lora::AdapterState& before, const lora::AdapterState& after) const {
    const double scaling = after.begin()->second.scaling;
    return tail(after).item<double>() * scaling < tail(before).item<double>();
  }

  static int64_t largest_rank(std::span<const ClientUpdate> updates, const std::string& site) {
    int64_t largest = 0;
    for (const auto& update : updates) largest = std::max(largest, update.sent(site).rank());
    return largest;
  }

  /// Copies the components from number `first` on.
  static void keep_from(int64_t first, const lora::LoraFactors& from, lora::LoraFactors& to) {
    const int64_t rest = from.rank() - first;
    to.a.narrow(-2, first, rest).copy_(from.a.narrow(-2, first, rest));
    to.b.narrow(-1, first, rest).copy_(from.b.narrow(-1, first, rest));
  }

  /// Pads factors to `rank` and converts them to scale 1. Factors that already have both are returned unchanged.
  static lora::LoraFactors at_full_rank(const lora::LoraFactors& sent, int64_t rank) {
    if (sent.scaling == 1 && sent.rank() == rank) return sent;
    return lora::padded(lora::rescaled(lora::received(sent), 1.0), rank);
  }

  /// Returns one weight per client: the norm of its whole update over all modules, divided by the sum. All weights are
  /// equal if all norms are zero.
  static std::vector<double> norm_weights(const ServerState& state, std::span<const ClientUpdate> updates) {
    std::vector<double> scores;
    double sum = 0;
    for (const auto& update : updates) {
      double squares = 0;
      for (const auto& [site, factors] : state.global.adapters)
        squares += lora::squared_product_norm(update.sent(site));
      release_mapped_pages();
      scores.push_back(std::sqrt(squares));
      sum += scores.back();
    }
    for (double& score : scores) score = sum > 0 ? score / sum : 1.0 / static_cast<double>(updates.size());
    return scores;
  }

  const Config config_;
};

}  // namespace

MethodEntry hetlora() {
  return method_entry<HetLora, Config>(
      {.name = "hetlora",
       .title = "HetLoRA",
       .paper = "Cho et al.: Heterogeneous LoRA, EMNLP 2024, arXiv:2401.06432",
       .family = MethodFamily::kRank,
       .exact = false,
       .needs_experts = false,
       .needs_individuals = true,
       .why_single = "weighs clients by the norms of their products",
       .sends = "A and B of every adapted weight, and the rank that it pruned itself to",
       .rows_by_gradients = true,
       .by_site = true});
}

}  // namespace evenkeel::methods
