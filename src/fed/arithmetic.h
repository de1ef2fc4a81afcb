/// \file  What the bits of a run depend on beside its data, where a config leaves it to the machine: how many threads
/// compute, and how products with a 16-bit base are made.
#pragma once

#include "fed/config.h"

namespace evenkeel {

/// What this machine stands in for where `config` leaves it open: all its cores, and the arithmetic that is faster
/// here, which takes a second to measure and is measured only when it is asked for.
MachineChoices machine_choices(const ExperimentConfig& config);

}  // namespace evenkeel
