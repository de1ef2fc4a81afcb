// FedIT: federated instruction tuning by FedAvg on the LoRA factors. The server averages A = sum_c p_c A_c and B =
// sum_c p_c B_c separately, so the aggregate is not the mean of the products B_c A_c. Zhang et al., "Towards Building
// the Federated GPT: Federated Instruction Tuning", ICASSP 2024, arXiv:2305.05644. FedIT is the default implementation
// of FederatedMethod (methods/method.cpp).
#include "methods/method_registry.h"

namespace evenkeel::methods {

MethodEntry fedit() {
  return method_entry<FederatedMethod>(
      {.name = "fedit",
       .title = "FedIT",
       .paper = "Zhang et al.: Towards Building the Federated GPT, ICASSP 2024, arXiv:2305.05644",
       .family = MethodFamily::kHomogeneous,
       .exact = false,
       .needs_experts = false,
       .from_sums = FromSums::kYes,
       .rows_by_gradients = true,
       .by_site = true});
}

}  // namespace evenkeel::methods
