// A3SMoE: activation-aware aggregation of sparse mixture-of-experts adapters (workshop paper; the formulas are those of
// FLAME, arXiv:2506.16600, which has the same idea). Readings: docs/ambiguities.md, "A3SMoE".
//
//   client   K_c experts per token; counts a_ci of n_c tokens; with a rescaler, the MoE output times a scalar. A learned
//            one is the client's own; an evaluation gets the mean over the clients of its K (docs/decisions/0024)
//   server   f_ci = a_ci / n_c,   w_ci = p_c f_ci^t / sum_c' p_c' f_c'i^t,   Theta_i = sum_c w_ci Theta_ci
//            everything but experts: sum_c p_c Theta_c
//
// Dimension names: E experts, C clients.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "methods/method.h"

namespace evenkeel {
namespace {

using config::EnumName;

enum class Rescaler { kOff, kLearn, kFixed };
enum class UnusedExpert { kKeep, kMean };

constexpr auto names(Rescaler) {
  return std::array{EnumName{"off", Rescaler::kOff}, EnumName{"learn", Rescaler::kLearn},
                    EnumName{"fixed", Rescaler::kFixed}};
}
constexpr auto names(UnusedExpert) {
  return std::array{EnumName{"keep", UnusedExpert::kKeep}, EnumName{"mean", UnusedExpert::kMean}};
}

struct Config {
  GateNorm gate_norm = GateNorm::kRenormSelected;
  double temperature = 1.0;
  Rescaler rescaler = Rescaler::kOff;
  UnusedExpert unused_expert = UnusedExpert::kKeep;

  void visit(auto& field) {
    field("gate_norm", gate_norm, kGateNormHelp);
    field("temperature", temperature, "t, the exponent of the activation share, >= 0; 0 is FedAvg");
    field("rescaler", rescaler, "scalar on MoE outputs: off, learn (each client its own), fixed at K / K_c");
    field("unused_expert", unused_expert, "an expert nobody used: keep the last factors, or the p-weighted mean");
  }

  void resolve(const config::Table& table) const {
    table.check(temperature >= 0, "temperature", temperature, "0 or more");
  }
};

std::string counts_of(const std::string& layer) { return layer + ".counts"; }
std::string tokens_of(const std::string& layer) { return layer + ".tokens"; }
constexpr const char* kMaxTopK = "k_max";
constexpr const char* kRescaler = "rescaler";
std::string rescaler_at(int64_t top_k) { return concat(kRescaler, ".", top_k); }

/// w_ci of one layer, columns that sum to one, or zeros where nobody used the expert. \return [C, E] float64
at::Tensor expert_weights_CE(const std::string& layer, double temperature, const RoundView& round,
                             std::span<const ClientUpdate> updates) {
  std::vector<at::Tensor> rows;
  for (size_t c = 0; c < updates.size(); ++c) {
    const double tokens = std::max(updates[c].extra(tokens_of(layer)).item<double>(), 1.0);
    const auto share_E = updates[c].extra(counts_of(layer)).to(at::kDouble) / tokens;
    rows.push_back(share_E.pow(temperature) * round.weights[c]);
  }
  const auto raw_CE = at::stack(rows), sum_E = raw_CE.sum(0);
  return at::where(sum_E.gt(0), raw_CE / sum_E, at::zeros_like(raw_CE));
}

/// The p-weighted mean of the learned rescalers of each K among the participants: "rescaler.<K>", [1] float32.
TensorMap mean_rescalers(const RoundView& round, std::span<const ClientUpdate> updates) {
  std::map<int64_t, std::pair<double, double>> sums;
  for (size_t c = 0; c < updates.size(); ++c) {
    auto& [sum, weight] = sums[updates[c].client.top_k];
    sum += round.weights[c] * updates[c].extra(kRescaler).item<double>();
    weight += round.weights[c];
  }
  TensorMap means;
  for (const auto& [top_k, mean] : sums)
    means[rescaler_at(top_k)] = at::full({1}, mean.first / mean.second, at::kFloat);
  return means;
}

/// sum_c w_ci theta_ci of one factor of one stack. \return [E, ...]
at::Tensor weighted_by_expert(at::Tensor LoraFactors::*factor, const std::string& site, const at::Tensor& weights_CE,
                              std::span<const ClientUpdate> updates) {
  at::Tensor sum;
  for (size_t c = 0; c < updates.size(); ++c) {
    const auto theta = (updates[c].factors(site).*factor).to(at::kDouble);
    const auto part = theta * weights_CE[static_cast<int64_t>(c)].view({-1, 1, 1});
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

class A3Smoe : public FederatedMethod {
 public:
  explicit A3Smoe(const Config& config) : config_(config) {}

  // --- client ---

  LocalSetup prepare(const Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.router.gate_norm = config_.gate_norm;
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

  Payload upload(const Payload& download, const LocalSetup& setup, const RoutingByLayer& counts,
                 const ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    for (const auto& [layer, stats] : counts) {
      payload.extras[counts_of(layer)] = stats.counts.to(at::kInt);
      payload.extras[tokens_of(layer)] = at::scalar_tensor(stats.tokens, at::kInt);
    }
    if (config_.rescaler == Rescaler::kLearn)
      payload.extras[kRescaler] = view.memory[kRescaler] = setup.router.output_scale.detach().clone();
    return payload;
  }

  // --- server ---

  ServerState initialize(const ServerView& server) const override {
    EK_CHECK(server.num_experts > 0, kConfig, "method a3smoe weighs experts, but the model is dense");
    auto state = FederatedMethod::initialize(server);
    state.memory[kMaxTopK] = at::scalar_tensor(static_cast<double>(server.max_top_k), at::kDouble);
    return state;
  }

  Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView& round) const override {
    auto payload = FederatedMethod::broadcast(state, client, round);
    if (config_.rescaler == Rescaler::kFixed) payload.extras[kMaxTopK] = state.memory.at(kMaxTopK);
    const auto learned = state.memory.find(rescaler_at(client.top_k));
    if (!client.trains && learned != state.memory.end()) payload.extras[kRescaler] = learned->second;
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        std::span<const ClientUpdate> updates) const override {
    auto next = FederatedMethod::aggregate(server, state, round, updates);
    if (config_.rescaler == Rescaler::kLearn)
      for (const auto& [name, mean] : mean_rescalers(round, updates)) next.memory[name] = mean;
    if (config_.temperature == 0) return next;
    std::map<std::string, at::Tensor> weights;
    for (const auto& layer : server.moe_layers)
      weights[layer] = expert_weights_CE(layer, config_.temperature, round, updates);
    for (auto& [site, factors] : next.global.adapters) {
      const auto& layer = server.sites.at(site).moe_layer;
      if (layer.empty()) continue;
      const auto& old = config_.unused_expert == UnusedExpert::kKeep ? state.global.adapters.at(site) : factors;
      factors.a = activation_aware(&LoraFactors::a, site, weights.at(layer), old, updates);
      factors.b = activation_aware(&LoraFactors::b, site, weights.at(layer), old, updates);
    }
    check_finite(next.global.adapters, concat("aggregate of round ", round.round));
    return next;
  }

  /// `rescaler.<K>`: the mean of what clients of that K learned, in the last round that had any.
  TensorMap diagnostics(const ServerState& state) const override {
    TensorMap result = state.memory;
    result.erase(kMaxTopK);
    return result;
  }

 private:
  /// The mean by activation, and `fallback` for experts without any.
  static at::Tensor activation_aware(at::Tensor LoraFactors::*factor, const std::string& site,
                                     const at::Tensor& weights_CE, const LoraFactors& fallback,
                                     std::span<const ClientUpdate> updates) {
    const auto used_E = weights_CE.sum(0).gt(0).view({-1, 1, 1});
    const auto mean = weighted_by_expert(factor, site, weights_CE, updates).to((fallback.*factor).scalar_type());
    return at::where(used_E, mean, fallback.*factor);
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
       .needs_experts = true});
}

}  // namespace evenkeel
