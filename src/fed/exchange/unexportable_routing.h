/// \file  Finds the parts of a run's routing that an exported adapter file cannot represent (docs/serving.md,
/// docs/decisions/0040-as-exported.md).
#pragma once

#include <vector>

#include "models/causal_lm.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::fed {

/// Router options of a run that an adapter file cannot represent. A true member means that the run uses the option.
struct UnexportableRouting {
  bool modulation = false;   ///< phi is added to the router's scores
  bool rescaler = false;     ///< a rescaler multiplies the output of the experts
  bool fixed_gates = false;  ///< the family fixes other gate weights: no key of config.json asks for the run's
  bool gates = false;        ///< inference servers compute other gate weights than transformers

  /// Returns the kinds of serving whose scores differ from the run's, in the order of the enum.
  std::vector<scoring::ServedBy> served_differently() const;
};
/// Compares the router options of a run with those of its model family.
UnexportableRouting unexportable_routing(const nn::RouterOptions& router, const models::GateRule& family);

/// Returns the gate weights that `by` computes for a run that was trained with `trained`.
nn::GateNorm served_gates(nn::GateNorm trained, scoring::ServedBy by, const models::GateRule& family);

}  // namespace evenkeel::fed
