// SMoE-LLB: FedAvg of sparse mixture-of-experts adapters, each client balancing its own experts with the load-balancing
// loss of Switch Transformers (Fedus et al. 2022, eq. 4) and the router z-loss of ST-MoE (Zoph et al. 2022, eq. 5).
//
//   client   L = L_task + llb_coef mean_l L_B + z_coef mean_l L_z
//            L_B = E sum_i f_i P_i,   f_i = a_i / (T K_c) (a constant),   P_i = mean_t softmax(s_t)_i
//            L_z = mean_t logsumexp(s_t)^2
//   server   Theta = sum_c p_c Theta_c
//
// Dimension names: T tokens, E experts.
#include <ATen/ATen.h>

#include <array>

#include "methods/method.h"

namespace evenkeel {
namespace {

enum class Norm { kPerLayerK, kHf };
constexpr auto names(Norm) {
  return std::array{config::EnumName<Norm>{"per_layer_k", Norm::kPerLayerK}, config::EnumName<Norm>{"hf", Norm::kHf}};
}

struct Config {
  GateNorm gate_norm = GateNorm::kRenormSelected;
  double llb_coef = 1e-2;
  double z_coef = 1e-3;
  Norm llb_norm = Norm::kPerLayerK;

  void visit(auto& field) {
    field("gate_norm", gate_norm, kGateNormHelp);
    field("llb_coef", llb_coef, "weight of the load-balancing loss, >= 0");
    field("z_coef", z_coef, "weight of the router z-loss, >= 0");
    field("llb_norm", llb_norm,
          "balanced is 1 in each layer (per_layer_k), or K over all layers pooled as transformers does (hf)");
  }

  void resolve(const config::Table& table) const {
    table.check(llb_coef >= 0, "llb_coef", llb_coef, "0 or more");
    table.check(z_coef >= 0, "z_coef", z_coef, "0 or more");
  }
};

/// E sum_i f_i P_i of some tokens' router scores. \param choices_E  token-choices per expert
at::Tensor load_balance(const at::Tensor& logits_TE, const at::Tensor& choices_E, double choices) {
  const auto f_E = choices_E.to(logits_TE.scalar_type()) / choices;
  return static_cast<double>(logits_TE.size(1)) * (f_E * logits_TE.softmax(-1).mean(0)).sum();
}

/// One layer at a time: 1 when balanced, whatever K_c.
at::Tensor per_layer_balance(const RoutingByLayer& routing, int64_t top_k) {
  at::Tensor sum;
  for (const auto& [layer, stats] : routing) {
    const auto loss =
        load_balance(stats.router_logits, stats.counts, static_cast<double>(stats.tokens) * static_cast<double>(top_k));
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum / static_cast<double>(routing.size());
}

/// All layers' tokens as if they were one layer's: K when balanced. Imbalance that differs between layers cancels.
at::Tensor pooled_balance(const RoutingByLayer& routing) {
  std::vector<at::Tensor> logits;
  at::Tensor choices_E;
  for (const auto& [layer, stats] : routing) {
    logits.push_back(stats.router_logits);
    choices_E = choices_E.defined() ? choices_E + stats.counts : stats.counts;
  }
  const auto all_TE = at::cat(logits);
  return load_balance(all_TE, choices_E, static_cast<double>(all_TE.size(0)));
}

at::Tensor z_loss(const RoutingByLayer& routing) {
  at::Tensor sum;
  for (const auto& [layer, stats] : routing) {
    const auto loss = stats.router_logits.logsumexp(-1).square().mean();
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum / static_cast<double>(routing.size());
}

class SmoeLlb : public FederatedMethod {
 public:
  explicit SmoeLlb(const Config& config) : config_(config) {}

  LocalSetup prepare(const Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.router.gate_norm = config_.gate_norm;
    return setup;
  }

  at::Tensor extra_loss(const StepView& step) const override {
    const auto& routing = step.micro_batches.back();
    if ((config_.llb_coef == 0 && config_.z_coef == 0) || !routing.begin()->second.router_logits.defined()) return {};
    const auto balance =
        config_.llb_norm == Norm::kHf ? pooled_balance(routing) : per_layer_balance(routing, step.view.client.top_k);
    const auto z = z_loss(routing);
    step.metrics.add("load_balance_loss", balance.item<double>());
    step.metrics.add("router_z_loss", z.item<double>());
    return config_.llb_coef * balance + config_.z_coef * z;
  }

  ServerState initialize(const ServerView& server) const override {
    EK_CHECK(server.num_experts > 0, kConfig, "method smoe-llb balances experts, but the model is dense");
    return FederatedMethod::initialize(server);
  }

 private:
  const Config config_;
};

}  // namespace

MethodEntry smoe_llb() {
  return method_entry<SmoeLlb, Config>({.name = "smoe-llb",
                                        .title = "SMoE-LLB",
                                        .paper = "FedAvg with the losses of Zoph et al.: ST-MoE, arXiv:2202.08906",
                                        .family = MethodFamily::kSparsity,
                                        .exact = false,
                                        .needs_experts = true});
}

}  // namespace evenkeel
