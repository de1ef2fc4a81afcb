/// \file  Measures how fast this machine computes large matrix products with the device and the arithmetic of a run.
#pragma once

#include <cstdint>
#include <functional>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// Returns the seconds of the fastest of several calls, four or more, after one that is not measured.
double least_seconds(const std::function<void()>& work);

/// Measures the speed of products in FLOP/s: that of the fastest of several short measurements, because other work on
/// the machine only slows them down. Takes about half a second for each kind of product. The product is that of the
/// engine, in its type: on a GPU several products of 8,192 rows, for which the host waits once; on a processor one of
/// 256 rows. compute_dtype "auto" of engine kernels is measured with every kernel.
/// \param model    `[model]` of a run; device "auto" is the GPU if there is one
/// \param threads  processor threads that compute; 0: those of the pool
/// \throws kConfig when the device does not exist
double product_speed(ModelSection model, int64_t threads);
/// Measures with the threads of all clients that train at the same time.
double product_speed(const ExperimentConfig& config);

}  // namespace evenkeel::fed
