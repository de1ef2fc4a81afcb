/// \file  Estimates the memory of a run, part by part, before it begins. `evenkeel doctor --config` prints the
/// estimate, and `train` checks it after reading its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "fed/run/experiment.h"
#include "models/memory_plan.h"

namespace evenkeel::fed {

/// Estimates the peak of main memory during a run: a client in its step, the server during aggregation, or an
/// evaluation, plus the memory that is always in use. The model may be without weights. The rows must be loaded,
/// because the estimate uses the longest micro-batch instead of data.cutoff.
models::MemoryPlan memory_plan(const Experiment& experiment);

/// Estimates the peak of main memory of a server whose clients are nodes: an aggregation, or an evaluation of the rows
/// that the server has.
models::MemoryPlan server_memory_plan(const Experiment& experiment);

/// Returns the bytes that a round merges into the base of every client; 0 for methods that leave the base unchanged.
int64_t merged_bytes_of_round(const Experiment& experiment);

/// Returns the bytes of A and B of all sites at a rank, in float32.
int64_t adapter_bytes(const Server& server, int64_t rank);
/// Returns the sum of the `count` largest values. REQUIRES count <= values.size()
int64_t sum_of_largest(std::vector<int64_t> values, int64_t count);

/// Estimates memory on the GPU that holds the base: the base, the shared state, and a client in its step or an
/// evaluation. The result is an upper bound, with activations in float32.
models::MemoryPlan device_memory_plan(const Experiment& experiment);
/// Checks that the GPU has enough memory for the device_memory_plan() of every rank of the run that shares the GPU.
/// Does nothing for the CPU.
/// \throws kConfig naming the largest part
void require_device_memory(const Experiment& experiment, c10::Device device);

}  // namespace evenkeel::fed
