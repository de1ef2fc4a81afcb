/// \file  Measures the training speed of this machine, for a profile in `[client_profiles]`
/// (fed/config/machine_profiles.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fed/config/machine_profiles.h"
#include "fed/run/experiment.h"

namespace evenkeel::fed {

/// Returns the K's of the clients and of the budgets 1/8, 1/4, 1/2 and 1, in rising order; for a dense model only 0.
std::vector<int64_t> measured_top_ks(const Experiment& e);

/// Measures training speed in tokens per second at each of `top_ks`, with the method, rows, batches, rank and threads
/// of `e`, in the state before the first round. One step is run for warm-up; then rounds are repeated until they have
/// taken `seconds`. Cost per K: `seconds`, and at least two steps.
/// \param seconds  measuring time per K, as LocalReport::seconds counts it
MachineProfile measured_profile(Experiment& e, std::span<const int64_t> top_ks, double seconds);

}  // namespace evenkeel::fed
