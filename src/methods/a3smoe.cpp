// A3SMoE: activation-aware aggregation of sparse mixture-of-experts adapters (workshop paper; the formulas are those of
// FLAME, arXiv:2506.16600, which has the same idea). Readings: docs/ambiguities.md, R47.
//
//   client   K_c experts per token; counts a_ci of n_c tokens; with a rescaler, the MoE output times a scalar. A
//            learned one is the client's own; an evaluation gets the mean over the clients of its K (decision 0024)
//   server   f_ci = a_ci / n_c, or a_ci / (n_c K_c),   w_ci = p_c f_ci^t / sum_c' p_c' f_c'i^t
//            Theta_i = sum_c w_ci Theta_ci
//            everything but experts: sum_c p_c Theta_c
//
// Dimension names: E experts, C clients.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "methods/expert_weights.h"
#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

using config::EnumName;

enum class Rescaler { kOff, kLearn, kFixed };
enum class Frequency { kPerToken, kPerSelection };

constexpr auto names(Rescaler) {
  return std::array{config::EnumName{"off", Rescaler::kOff}, config::EnumName{"learn", Rescaler::kLearn},
                    config::EnumName{"fixed", Rescaler::kFixed}};
}
constexpr auto names(Frequency) {
  return std::array{config::EnumName{"per_token", Frequency::kPerToken},
                    config::EnumName{"per_selection", Frequency::kPerSelection}};
}

struct Config {
  double temperature = 1.0;
  Frequency frequency = Frequency::kPerToken;
  Rescaler rescaler = Rescaler::kOff;
  UnusedExpert unused_expert = UnusedExpert::kKeep;

  void visit(auto& field) {
    field("temperature", temperature, "exponent t of the activation share, 0 or more; 0: FedAvg");
    field("frequency", frequency,
          "activation share of an expert on a client: per_token (a / n, a client weighs in proportion to its K_c) or "
          "per_selection (a / (n K_c), which sums to 1 over the experts for every K_c)");
    field("rescaler", rescaler, "scale of MoE outputs: off, learn (one per client) or fixed (K / K_c)");
    field("unused_expert", unused_expert,
          "factors of an expert that no client used: keep (the last ones) or mean (weighted by p)");
  }

  void resolve(const config::Table& table) const {
    table.check(temperature >= 0, "temperature", temperature, "0 or more");
  }
};

std::string counts_of(const std::string& layer) { return layer + ".counts"; }
std::string tokens_of(const std::string& layer) { return layer + ".tokens"; }
std::string activation_of(const std::string& layer) { return layer + ".activation"; }
constexpr const char* kMaxTopK = "k_max";
constexpr const char* kRescaler = "rescaler";
constexpr double kMostRescaler = 1000;  // of an upload; it begins at 1
std::string rescaler_at(int64_t top_k) { return concat(kRescaler, ".", top_k); }

/// Computes p_c f_ci^t for one layer, before division by the sum over clients.
/// \return [E] float64
at::Tensor activation_E(const std::string& layer, const Config& config, const ClientUpdate& update, double weight) {
  const double tokens = std::max(update.extra(tokens_of(layer)).item<double>(), 1.0);
  const bool per_selection = config.frequency == Frequency::kPerSelection;
  const double choices = per_selection ? tokens * static_cast<double>(update.client.top_k) : tokens;
  const auto share_E = update.extra(counts_of(layer)).to(at::kDouble) / choices;
  return share_E.pow(config.temperature) * weight;
}

/// Computes the p-weighted mean of the learned rescalers for each K among the participants: "rescaler.<K>", [1]
/// float32.
TensorMap mean_rescalers(const RoundView& round, const Uploads& uploads) {
  TensorMap means;
  for (const auto& one : round.participants) {
    double weights = 0;
    for (size_t c = 0; c < round.participants.size(); ++c)
      if (round.participants[c].top_k == one.top_k) weights += round.weights[c];
    const auto sum = uploads.sum(round.weights, [&](const ClientUpdate& update, double weight) {
      return update.client.top_k == one.top_k ? weight * update.extra(kRescaler).to(at::kDouble) : at::Tensor();
    });
    means[rescaler_at(one.top_k)] = (sum / weights).to(at::kFloat).view({1});
  }
  return means;
}

class A3Smoe : public FederatedMethod {
 public:
  explicit A3Smoe(const Config& config) : config_(config) {}

  // --- client ---

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    if (config_.rescaler == Rescaler::kFixed)
      setup.router.output_scale =
          (download.extras.at(kMaxTopK) / static_cast<double>(view.client.top_k)).to(at::kFloat);
    if (config_.rescaler == Rescaler::kLearn) {
      const auto& source = view.client.trains ? view.memory : download.extras;
      const auto known = source.find(kRescaler);
      setup.router.output_scale = known == source.end() ? at::ones({1}) : known->second.clone();
      if (view.client.trains) setup.extra_trainables[kRescaler] = setup.router.output_scale;
    }
    return setup;
  }

  lora::Payload upload(const lora::Payload& download, const LocalSetup& setup, const nn::RoutingByLayer& counts,
                       const ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    check_countable(counts, view.client);
    for (const auto& [layer, stats] : counts) {
      payload.extras[counts_of(layer)] = stats.counts.to(at::kInt);
      payload.extras[tokens_of(layer)] = at::scalar_tensor(stats.tokens, at::kInt);
    }
    if (config_.rescaler == Rescaler::kLearn)
      payload.extras[kRescaler] = view.memory[kRescaler] = setup.router.output_scale.detach().clone();
    return payload;
  }

  void check_sums() const override {
    EK_CHECK(config_.rescaler != Rescaler::kLearn, kConfig,
             "secure_aggregation.mode: method.a3smoe.rescaler is \"learn\", "
             "which sends the scale of each client; allowed: off, fixed");
    EK_CHECK(
        config_.unused_expert != UnusedExpert::kMean || config_.temperature == 0, kConfig,
        "secure_aggregation.mode: method.a3smoe.unused_expert is \"mean\", which needs a second sum of all factors; "
        "allowed: keep");
  }

  TensorMap summands(const ClientUpdate& own, double weight) const override {
    TensorMap parts;
    if (config_.temperature == 0) return parts;
    for (const auto& [name, tensor] : own.payload.extras)
      if (const auto layer = name.substr(0, name.rfind('.')); name == counts_of(layer))
        parts[activation_of(layer)] = activation_E(layer, config_, own, weight);
    return parts;
  }

  at::Tensor expert_weights(const std::string& layer, const ClientUpdate& own, double weight) const override {
    return config_.temperature == 0 ? at::Tensor() : activation_E(layer, config_, own, weight);
  }

  // --- server ---

  void check_upload(const lora::Payload& upload, const ClientProfile& client) const override {
    check_routing_counts(upload, client);
    const auto sent = upload.extras.find(kRescaler);
    const double rescaler = sent == upload.extras.end() ? 0 : sent->second.abs().max().item<double>();
    EK_CHECK(rescaler <= kMostRescaler, kData, "the rescaler is of magnitude ", rescaler, ", allowed: up to ",
             kMostRescaler);
  }

  ServerState initialize(const ServerView& server) const override {
    EK_CHECK(server.num_experts > 0, kConfig, "method a3smoe weighs experts, but the model is dense");
    EK_CHECK(config_.rescaler == Rescaler::kOff || !server.norm_behind_experts, kConfig,
             "method.a3smoe.rescaler scales the output of experts, but this model normalises it: set rescaler to off");
    auto state = FederatedMethod::initialize(server);
    state.memory[kMaxTopK] = at::scalar_tensor(static_cast<double>(server.max_top_k), at::kDouble);
    return state;
  }

  lora::Payload broadcast(const ServerState& state, const ClientProfile& client,
                          const RoundView& round) const override {
    auto payload = FederatedMethod::broadcast(state, client, round);
    if (config_.rescaler == Rescaler::kFixed) payload.extras[kMaxTopK] = state.memory.at(kMaxTopK);
    const auto learned = state.memory.find(rescaler_at(client.top_k));
    if (!client.trains && learned != state.memory.end()) payload.extras[kRescaler] = learned->second;
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    if (config_.temperature == 0)
      return with_rescalers(FederatedMethod::aggregate(server, state, round, uploads), round, uploads);
    auto next = weighted_by_expert(
        server, state, round, uploads,
        [&](const std::string& layer, const ClientUpdate& update, double weight) {
          return activation_E(layer, config_, update, weight);
        },
        config_.unused_expert, activation_of);
    return with_rescalers(std::move(next), round, uploads);
  }

  /// Returns `rescaler.<K>`: the mean rescaler of clients with that K, from the last round that had any.
  TensorMap diagnostics(const ServerState& state) const override {
    TensorMap result = state.memory;
    result.erase(kMaxTopK);
    return result;
  }

 private:
  ServerState with_rescalers(ServerState next, const RoundView& round, const Uploads& uploads) const {
    if (config_.rescaler == Rescaler::kLearn)
      for (const auto& [name, mean] : mean_rescalers(round, uploads)) next.memory[name] = mean;
    return next;
  }

  const Config config_;
};

}  // namespace

MethodEntry a3smoe() {
  return method_entry<A3Smoe, Config>(
      {.name = "a3smoe",
       .title = "A3SMoE",
       .paper = "Tran et al.: A3SMoE, workshop paper; formulas of FLAME, arXiv:2506.16600",
       .family = MethodFamily::kSparsity,
       .exact = false,
       .needs_experts = true,
       .gate_norm = nn::GateNorm::kRenormSelected,
       .weighs_experts = true,
       .from_sums = FromSums::kWithOptions,
       .sends = "A and B of every adapted weight, how many tokens chose each expert, and a learned "
                "rescaler",
       .by_site = true});
}

}  // namespace evenkeel::methods
