/// \file  Finds the parts of a run's routing that an exported adapter file cannot hold (docs/serving.md,
/// docs/decisions/0040-as-exported.md).
#pragma once

#include <vector>

#include "models/causal_lm.h"
#include "scoring/task_evaluation.h"

namespace evenkeel {

/// Router options of a run that an adapter file cannot hold. A true member means that the run uses the option.
struct UnexportableRouting {
  bool modulation = false;   ///< phi is added to the router's scores
  bool rescaler = false;     ///< a rescaler multiplies the output of the experts
  bool gates = false;        ///< the method asked for gate weights other than the checkpoint's
  bool for_servers = false;  ///< inference servers compute other gate weights for this model family

  /// Returns the kinds of serving with scores that differ from the run's, in the order of the enum. A checkpoint that
  /// servers already misread without a method's change does not count.
  std::vector<ServedBy> served_differently() const;
};
/// Compares the router options of a run with those of its model family.
UnexportableRouting unexportable_routing(const RouterOptions& router, const GateRule& family);

/// Returns the gate weights that `by` computes for a run that was trained with `trained`.
GateNorm served_gates(GateNorm trained, ServedBy by, const GateRule& family);

}  // namespace evenkeel
