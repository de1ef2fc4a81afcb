/// \file  Measures how fast this machine computes large matrix products with the device, dtype and kernels of a run.
#pragma once

#include <cstdint>
#include <functional>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// Calls `work` once without measuring it, then four times or more. Returns the seconds of the fastest call.
double least_seconds(const std::function<void()>& work);

/// Measures the speed of a matrix product in FLOP/s. Returns the fastest of several short measurements, because other
/// work on the machine only slows them down. Takes about half a second for each kernel. The engine computes the product
/// in its dtype: on a GPU several products of 8,192 rows, for which the host waits once; on a CPU one product of 256
/// rows. compute_dtype "auto" of engine kernels is measured with every kernel.
/// \param model    `[model]` of a run; device "auto" is the GPU if there is one
/// \param threads  CPU threads that compute; 0: the threads of the pool
/// \throws kConfig when the device does not exist
double product_speed(ModelSection model, int64_t threads);
/// Works as above, with the threads of all clients that train at the same time.
double product_speed(const ExperimentConfig& config);

}  // namespace evenkeel::fed
