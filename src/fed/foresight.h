/// \file  What a run will hold in memory, part by part, said before it begins: `evenkeel doctor --config`, and the
/// first thing that `train` does after reading its rows.
#pragma once

#include "fed/experiment.h"
#include "models/memory_plan.h"

namespace evenkeel {

/// The worst moment of a run of `experiment`, whose model may be without weights: a client in its step, the server
/// between two states, or an evaluation, beside what is held all the time. Needs its rows: the longest micro-batch
/// counts, not data.cutoff.
MemoryPlan memory_plan(const Experiment& experiment);

}  // namespace evenkeel
