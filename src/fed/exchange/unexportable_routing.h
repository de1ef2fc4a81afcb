/// \file  What of a run's routing stays behind when its adapter goes to another program (docs/serving.md,
/// docs/decisions/0040-as-exported.md).
#pragma once

#include <vector>

#include "models/causal_lm.h"
#include "scoring/task_evaluation.h"

namespace evenkeel {

/// What an adapter file does not hold of a router's options, which is all of them.
struct UnexportableRouting {
  bool modulation = false;   ///< phi is added to its scores
  bool rescaler = false;     ///< its layer's output is multiplied
  bool gates = false;        ///< gate weights that its method asked for
  bool for_servers = false;  ///< gate weights that the family's servers do not compute, whoever asked for them

  /// Those whose scores differ from the run's, in the order of the enum. A checkpoint that servers misread by itself is
  /// not the method's loss.
  std::vector<ServedBy> served_differently() const;
};
UnexportableRouting unexportable_routing(const RouterOptions& router, const GateRule& family);

/// Gates of a run that was trained with `trained`, as `by` computes them.
GateNorm served_gates(GateNorm trained, ServedBy by, const GateRule& family);

}  // namespace evenkeel
