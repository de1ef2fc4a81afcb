// FFA-LoRA: federated freeze-A LoRA. Sun, Li, Li, Ding, "Improving LoRA in Privacy-preserving Federated Learning", ICLR
// 2024, arXiv:2403.12313.
//
//   all      one random A per module, drawn once, the same for everybody, never trained
//   client   trains B_c alone
//   server   B = sum_c p_c B_c, which is exact: sum_c p_c B_c A = B A
#include <ATen/ATen.h>

#include "methods/method_registry.h"

namespace evenkeel::methods {
namespace {

class FfaLora : public FederatedMethod {
 public:
  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.trainable = Trainable::kB;
    return setup;
  }

  lora::Payload upload(const lora::Payload&, const LocalSetup& setup, const nn::RoutingByLayer&,
                       const ClientView&) const override {
    lora::Payload payload;
    for (const auto& [site, factors] : setup.adapters)
      payload.adapters[site] = {.b = factors.b.detach(), .scaling = factors.scaling};
    return payload;
  }

  /// Creates the first state. The seed of each A depends on the module's name, so modules of the same shape differ.
  ServerState initialize(const ServerView& server) const override {
    auto state = FederatedMethod::initialize(server);
    for (auto& [site, factors] : state.global.adapters) {
      state.common.fixed[site] = {.a = factors.a, .scaling = factors.scaling};
      factors.a = at::Tensor();
    }
    return state;
  }
};

}  // namespace

MethodEntry ffa_lora() {
  return method_entry<FfaLora>(
      {.name = "ffa-lora",
       .title = "FFA-LoRA",
       .paper = "Sun et al.: Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024, arXiv:2403.12313",
       .family = MethodFamily::kHomogeneous,
       .exact = true,
       .needs_experts = false,
       .from_sums = FromSums::kYes,
       .sends = "B of every adapted weight",
       .rows_by_gradients = true,
       .by_site = true});
}

}  // namespace evenkeel::methods
