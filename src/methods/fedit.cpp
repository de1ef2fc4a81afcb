// FedIT: federated instruction tuning by FedAvg on the LoRA factors. A = sum_c p_c A_c and B = sum_c p_c B_c,
// separately, so the aggregate is not the mean of the products B_c A_c. Zhang et al., "Towards Building the Federated
// GPT: Federated Instruction Tuning", ICASSP 2024, arXiv:2305.05644.
#include "methods/method.h"

namespace evenkeel {
namespace {

struct Config {
  GateNorm gate_norm = GateNorm::kCheckpoint;
  void visit(auto& field) { field("gate_norm", gate_norm, kGateNormHelp); }
};

class FedIt : public FederatedMethod {
 public:
  explicit FedIt(const Config& config) : config_(config) {}

  LocalSetup prepare(const Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.router.gate_norm = config_.gate_norm;
    return setup;
  }

 private:
  const Config config_;
};

}  // namespace

MethodEntry fedit() {
  return method_entry<FedIt, Config>(
      {.name = "fedit",
       .title = "FedIT",
       .paper = "Zhang et al.: Towards Building the Federated GPT, ICASSP 2024, arXiv:2305.05644",
       .family = MethodFamily::kHomogeneous,
       .exact = false,
       .needs_experts = false});
}

}  // namespace evenkeel
