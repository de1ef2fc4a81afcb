/// \file  What the bits of a run depend on beside its data, where a config leaves it to the machine: how many threads
/// compute, and which kernels make products with the base.
#pragma once

#include "fed/config/experiment_config.h"

namespace evenkeel {

/// What this machine stands in for where `config` leaves it open: all its cores, its GPU, and the kernels that are
/// fastest here,
/// which takes seconds to measure (nn/dense/matmul_probe.h) and is measured only where it is asked for and the model
/// has a large weight in 16 bits or int8. \throws as load_shape()
MachineChoices machine_choices(const ExperimentConfig& config);

/// Leads a settled config to another device: `device` as --device has it, empty or the one it has: nothing happens. The
/// engine is then that device's, and kernels that were measured for processors are no more said.
/// \throws kConfig where the device or its engine cannot do what the config says
void compute_on(ModelSection& model, const std::string& device);

}  // namespace evenkeel
