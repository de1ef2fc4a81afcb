#include "fed/exchange/unexportable_routing.h"

namespace evenkeel {

std::vector<ServedBy> UnexportableRouting::served_differently() const {
  std::vector<ServedBy> all;
  if (modulation || rescaler) all.push_back(ServedBy::kTransformers);
  if (for_servers && (modulation || rescaler || gates)) all.push_back(ServedBy::kNativeGates);
  return all;
}

UnexportableRouting unexportable_routing(const RouterOptions& router, const GateRule& family) {
  const bool sum_to_one = renormalises(router.gate_norm, family.renormalise);
  return {.modulation = !router.modulation.empty(),
          .rescaler = router.output_scale.defined(),
          .gates = router.gate_norm != GateNorm::kCheckpoint,
          .for_servers = sum_to_one != family.servers.value_or(sum_to_one)};
}

GateNorm served_gates(GateNorm trained, ServedBy by, const GateRule& family) {
  if (by != ServedBy::kNativeGates || !family.servers) return trained;
  return *family.servers ? GateNorm::kRenormSelected : GateNorm::kSoftmaxAll;
}

}  // namespace evenkeel
