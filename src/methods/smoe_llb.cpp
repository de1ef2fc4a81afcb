// SMoE-LLB: FedAvg of sparse mixture-of-experts adapters, each client balancing its own experts with the load-balancing
// loss of Switch Transformers (Fedus et al. 2022, eq. 4) and the router z-loss of ST-MoE (Zoph et al. 2022, eq. 5).
//
//   client   L = L_task + llb_coef mean_l L_B + z_coef mean_l L_z        (llb_norm "sum": sums over layers l)
//            L_B = E sum_i f_i P_i,   f_i = a_i / (T K_c) (a constant),   P_i = mean_t softmax(s_t)_i
//            L_z = mean_t logsumexp(s_t)^2                                (nn/moe/balance_losses.h)
//   server   Theta = sum_c p_c Theta_c
#include <ATen/ATen.h>

#include <array>

#include "methods/method_registry.h"
#include "nn/moe/balance_losses.h"

namespace evenkeel::methods {
namespace {

enum class Norm { kPerLayerK, kSum, kHf };
constexpr auto names(Norm) {
  return std::array{config::EnumName<Norm>{"per_layer_k", Norm::kPerLayerK}, config::EnumName<Norm>{"sum", Norm::kSum},
                    config::EnumName<Norm>{"hf", Norm::kHf}};
}

struct Config {
  double llb_coef = 1e-2;
  double z_coef = 1e-3;
  Norm llb_norm = Norm::kPerLayerK;

  void visit(auto& field) {
    field("llb_coef", llb_coef, "weight of the load-balancing loss, 0 or more");
    field("z_coef", z_coef, "weight of the router z-loss, 0 or more");
    field("llb_norm", llb_norm,
          "balancing loss over layers: their mean (per_layer_k; 1 when balanced), their sum, as in both papers' code "
          "(sum), or one loss over all layers' tokens, as in transformers (hf; K when balanced)");
  }

  void resolve(const config::Table& table) const {
    table.check(llb_coef >= 0, "llb_coef", llb_coef, "0 or more");
    table.check(z_coef >= 0, "z_coef", z_coef, "0 or more");
  }
};

class SmoeLlb : public FederatedMethod {
 public:
  explicit SmoeLlb(const Config& config) : config_(config) {}

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.router.records_logits = config_.llb_coef > 0 || config_.z_coef > 0;
    return setup;
  }

  at::Tensor extra_loss(const StepView& step) const override {
    if (config_.llb_coef == 0 && config_.z_coef == 0) return {};
    const nn::StackedRouting routing = step.micro_batches.back();
    EK_CHECK(routing.logits_LTE.defined(), kConfig,
             "method smoe-llb balances experts, but no adapter changes what a router sees (lora.targets, "
             "lora.router_lora)");
    const auto balance =
        config_.llb_norm == Norm::kHf ? nn::pooled_load_balance_loss(routing) : nn::load_balance_loss(routing);
    const auto z = nn::router_z_loss(routing);
    step.metrics.add("load_balance_loss", balance);
    step.metrics.add("router_z_loss", z);
    const auto loss = config_.llb_coef * balance + config_.z_coef * z;
    return config_.llb_norm == Norm::kSum ? loss * static_cast<double>(routing.layers) : loss;
  }

  ServerState initialize(const ServerView& server) const override {
    EK_CHECK(server.num_experts > 0, kConfig, "method smoe-llb balances experts, but the model is dense");
    EK_CHECK(server.score == nn::ScoreFunction::kSoftmax, kConfig,
             "method smoe-llb balances the softmax of routers, but the routers of this model have sigmoid scores");
    return FederatedMethod::initialize(server);
  }

 private:
  const Config config_;
};

constexpr std::array kBalanceMetrics{MetricRange{.name = "load_balance_loss"}, MetricRange{.name = "router_z_loss"}};

}  // namespace

MethodEntry smoe_llb() {
  return method_entry<SmoeLlb, Config>({.name = "smoe-llb",
                                        .title = "SMoE-LLB",
                                        .paper = "FedAvg with the losses of Zoph et al.: ST-MoE, arXiv:2202.08906",
                                        .family = MethodFamily::kSparsity,
                                        .exact = false,
                                        .needs_experts = true,
                                        .gate_norm = nn::GateNorm::kRenormSelected,
                                        .from_sums = FromSums::kYes,
                                        .metrics = kBalanceMetrics,
                                        .by_site = true});
}

}  // namespace evenkeel::methods
