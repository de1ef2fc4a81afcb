#include "fed/exchange/unexportable_routing.h"

namespace evenkeel::fed {

std::vector<scoring::ServedBy> UnexportableRouting::served_differently() const {
  std::vector<scoring::ServedBy> all;
  if (modulation || rescaler || fixed_gates) all.push_back(scoring::ServedBy::kTransformers);
  if (gates) all.push_back(scoring::ServedBy::kNativeGates);
  return all;
}

UnexportableRouting unexportable_routing(const nn::RouterOptions& router, const models::GateRule& family) {
  const bool sum_to_one = nn::renormalises(router.gate_norm, family.renormalise);
  const bool in_transformers = family.key.empty() ? family.renormalise : sum_to_one;
  return {.modulation = !router.modulation.empty(),
          .rescaler = router.output_scale.defined(),
          .fixed_gates = sum_to_one != in_transformers,
          .gates = family.servers.value_or(in_transformers) != in_transformers};
}

nn::GateNorm served_gates(nn::GateNorm trained, scoring::ServedBy by, const models::GateRule& family) {
  if (by == scoring::ServedBy::kTransformers && family.key.empty()) return nn::GateNorm::kCheckpoint;
  if (by != scoring::ServedBy::kNativeGates || !family.servers) return trained;
  return *family.servers ? nn::GateNorm::kRenormSelected : nn::GateNorm::kSoftmaxAll;
}

}  // namespace evenkeel::fed
