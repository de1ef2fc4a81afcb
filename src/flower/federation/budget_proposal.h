/// \file  Chooses the budget of a node by measuring its machine (`evenkeel node --budget auto`).
#pragma once

#include <cstdint>

#include "fed/run/experiment.h"

namespace evenkeel::flower {

/// Gives the client the largest budget at which this machine finishes a round within `seconds`, or within half of
/// clients.deadline if that is less. If it never does, the client gets the smallest measured budget. Each K is measured
/// for two seconds of training.
/// \param seconds  most seconds of a round's training
/// \throws kConfig when budgets of this method or model are not numbers of experts
void propose_budget(fed::Experiment& e, int64_t client, double seconds);

}  // namespace evenkeel::flower
