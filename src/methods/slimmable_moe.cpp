// Slimmable MoE: FedAvg of which every client also trains the functions with fewer experts per token than its own, and
// of which experts are averaged over the clients that used them. Each half has a key and a value for FedAvg
// (docs/decisions/0111-slimmable-moe.md).
//
//   client   L = L_task(K_c) + distillation tau^2 KL(sg p(.; K_c) || p(.; K')), K' drawn per step: 1, 2, 4, .. below
//            K_c. Inplace distillation of Yu and Huang 2019 (arXiv:1903.05134), over experts in place of widths
//   server   Theta_i = sum_c p_c s_ci Theta_ci / sum_c p_c s_ci for expert i, where s_ci is the share of the client's
//            steps, tokens or gate weights that used it; an expert that nobody used keeps its value
//            everything but experts: sum_c p_c Theta_c
//
// Dimension names: L layers, T tokens, E experts, K selected.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "methods/expert_weights.h"
#include "methods/method_registry.h"
#include "nn/moe/balance_losses.h"

namespace evenkeel::methods {
namespace {

enum class Mass { kNone, kSteps, kTokens, kGates };

constexpr auto names(Mass) {
  return std::array{config::EnumName{"none", Mass::kNone}, config::EnumName{"steps", Mass::kSteps},
                    config::EnumName{"tokens", Mass::kTokens}, config::EnumName{"gates", Mass::kGates}};
}

struct Config {
  Mass expert_mass = Mass::kSteps;
  double distillation = 1.0;
  double temperature = 1.0;

  void visit(auto& field) {
    field("expert_mass", expert_mass,
          "weight of a client's factors of an expert besides p: none (FedAvg), or the share of its steps, tokens or "
          "gate weights (gates) that used the expert");
    field(
        "distillation", distillation,
        "weight of the KL divergence of the client's outputs with fewer experts per token from its own, 0 or more; 0: "
        "no second pass");
    field("temperature", temperature, "temperature of both answers, above 0");
  }

  void resolve(const config::Table& table) const {
    table.check(distillation >= 0, "distillation", distillation, "0 or more");
    table.check(temperature > 0, "temperature", temperature, "above 0");
  }
};

std::string share_of(const std::string& layer) { return layer + ".share"; }
constexpr const char* kMass = "mass";         // of LocalSetup::notes: [L, E] float64
constexpr const char* kTotal = "mass.total";  // what shares are divided by: steps with a target
constexpr double kRounding = 1e-4;            // of shares in float32

void add_note(LocalSetup& setup, const char* name, const at::Tensor& more) {
  auto& sum = setup.notes[name];
  sum = sum.defined() ? sum + more : more;
}

/// Returns which experts a step used. \return [L, E] float64
at::Tensor used_LE(std::span<const nn::RoutingByLayer> micro_batches) {
  std::vector<at::Tensor> counts;  // [E] of each layer and micro-batch
  for (const auto& routing : micro_batches)
    for (const auto& [layer, stats] : routing) counts.push_back(stats.counts);
  const auto batches = static_cast<int64_t>(micro_batches.size());
  const auto all = at::stack(counts);
  return all.gt(0).view({batches, all.size(0) / batches, all.size(1)}).any(0).to(at::kDouble);
}

/// Returns the sum over tokens of the gate weights of each expert, renormalised over the K selected. \return [L, E]
/// float64
at::Tensor gates_LE(const at::Tensor& logits_LTE, int64_t top_k) {
  const auto [largest_LTK, experts_LTK] = logits_LTE.detach().to(at::kDouble).topk(top_k);
  return at::zeros(logits_LTE.sizes(), largest_LTK.options()).scatter(2, experts_LTK, largest_LTK.softmax(-1)).sum(1);
}

bool has_all_logits(const nn::RoutingByLayer& routing) {
  return std::all_of(routing.begin(), routing.end(),
                     [](const auto& one) { return one.second.router_logits.defined(); });
}

class SlimmableMoe : public FederatedMethod {
 public:
  explicit SlimmableMoe(const Config& config) : config_(config) {}

  // --- client ---

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.router.records_logits = view.client.trains && config_.expert_mass == Mass::kGates;
    if (view.client.trains) setup.distillation = {.weight = config_.distillation, .temperature = config_.temperature};
    return setup;
  }

  /// Adds up gate weights, and no loss.
  at::Tensor extra_loss(const StepView& step) const override {
    if (config_.expert_mass != Mass::kGates) return {};
    const auto& last = step.micro_batches.back();
    EK_CHECK(has_all_logits(last), kConfig,
             "method.slimmable-moe.expert_mass is gates, but no gradient reaches the router "
             "of the first layer: add q_proj or gate to lora.targets, or take tokens");
    add_note(step.setup, kMass, gates_LE(nn::StackedRouting(last).logits_LTE, step.setup.router.top_k));
    return {};
  }

  /// Counts the steps that used an expert.
  void edit_gradients(const StepView& step) const override {
    if (config_.expert_mass != Mass::kSteps || step.micro_batches.empty()) return;
    add_note(step.setup, kMass, used_LE(step.micro_batches));
    add_note(step.setup, kTotal, at::ones({}, at::kDouble));
  }

  lora::Payload upload(const lora::Payload& download, const LocalSetup& setup, const nn::RoutingByLayer& counts,
                       const ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    if (config_.expert_mass == Mass::kNone) return payload;
    int64_t place = 0;
    for (const auto& [layer, stats] : counts)
      payload.extras[share_of(layer)] = (mass_E(setup, place++, stats) / total(setup, stats)).to(at::kFloat);
    return payload;
  }

  // --- server ---

  void check_upload(const lora::Payload& upload, const ClientProfile& client) const override {
    for (const auto& [name, share_E] : upload.extras) {
      const auto [least, most] = share_E.aminmax();
      EK_CHECK(least.item<double>() >= 0 && most.item<double>() <= 1 + kRounding, kData, name, " runs from ",
               least.item<double>(), " to ", most.item<double>(), ", allowed: 0 to 1");
      if (config_.expert_mass == Mass::kSteps) continue;
      const double sum = share_E.sum(at::kDouble).item<double>();
      const auto whole = config_.expert_mass == Mass::kTokens ? static_cast<double>(client.top_k) : 1.0;
      EK_CHECK(sum <= whole + kRounding, kData, name, " sums to ", sum, ", allowed: up to ", whole);
    }
  }

  ServerState initialize(const ServerView& server) const override {
    EK_CHECK(server.num_experts > 0, kConfig, "method slimmable-moe weighs experts, but the model is dense");
    EK_CHECK(
        config_.expert_mass != Mass::kGates || server.score == nn::ScoreFunction::kSoftmax, kConfig,
        "method.slimmable-moe.expert_mass is gates, which are a softmax, but the routers of this model have sigmoid "
        "scores");
    return FederatedMethod::initialize(server);
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    if (config_.expert_mass == Mass::kNone) return FederatedMethod::aggregate(server, state, round, uploads);
    const auto weights = [](const std::string& layer, const ClientUpdate& update, double weight) {
      return update.extra(share_of(layer)).to(at::kDouble) * weight;
    };
    return weighted_by_expert(server, state, round, uploads, weights, UnusedExpert::kKeep, share_of);
  }

 private:
  /// \param place  of the layer among all
  at::Tensor mass_E(const LocalSetup& setup, int64_t place, const nn::RoutingStats& stats) const {
    if (config_.expert_mass == Mass::kTokens) return stats.counts.to(at::kDouble);
    const auto found = setup.notes.find(kMass);
    return found == setup.notes.end() ? at::zeros(stats.counts.sizes(), at::kDouble) : found->second[place].cpu();
  }
  double total(const LocalSetup& setup, const nn::RoutingStats& stats) const {
    if (config_.expert_mass != Mass::kSteps) return std::max<double>(1, static_cast<double>(stats.tokens));
    const auto steps = setup.notes.find(kTotal);
    return steps == setup.notes.end() ? 1 : steps->second.item<double>();
  }

  const Config config_;
};

constexpr std::array kDistillationMetrics{MetricRange{.name = "distillation_kl"}};

}  // namespace

MethodEntry slimmable_moe() {
  return method_entry<SlimmableMoe, Config>(
      {.name = "slimmable-moe",
       .title = "Slimmable MoE",
       .paper = "of this project; inplace distillation of Yu and Huang 2019, arXiv:1903.05134",
       .family = MethodFamily::kSparsity,
       .exact = false,
       .needs_experts = true,
       .gate_norm = nn::GateNorm::kRenormSelected,
       .weighs_experts = true,
       .sends =
           "A and B of every adapted weight, and which share of its steps, tokens or gate weights used each expert",
       .metrics = kDistillationMetrics,
       .by_site = true});
}

}  // namespace evenkeel::methods
