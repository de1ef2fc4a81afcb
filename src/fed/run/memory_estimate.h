/// \file  What a run will hold in memory, part by part, said before it begins: `evenkeel doctor --config`, and the
/// first thing that `train` does after reading its rows.
#pragma once

#include "fed/run/experiment.h"
#include "models/memory_plan.h"

namespace evenkeel {

/// The worst moment of a run of `experiment`, whose model may be without weights: a client in its step, the server
/// between two states, or an evaluation, beside what is held all the time. Needs its rows: the longest micro-batch
/// counts, not data.cutoff.
MemoryPlan memory_plan(const Experiment& experiment);

/// What of it lies on the device of the base, where that is a GPU: the base, what all clients hold alike, a client in
/// its step or an evaluation. Upper bounds, of activations in float32.
MemoryPlan device_memory_plan(const Experiment& experiment);
/// \throws kConfig with the largest part where `device` is a GPU without room for the plan.
void require_device_memory(const Experiment& experiment, c10::Device device);

}  // namespace evenkeel
