/// \file  How fast this machine trains, measured by training: what a device of `[client_profiles]`
/// (fed/config/machine_profiles.h) is to say of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fed/config/machine_profiles.h"
#include "fed/run/experiment.h"

namespace evenkeel {

/// The K's of the clients, and those of the budgets 1/8, 1/4, 1/2 and 1, in rising order; of a dense model 0 alone.
std::vector<int64_t> measured_top_ks(const Experiment& e);

/// Tokens per second of a client's training at each of `top_ks`, with the method, rows, batches, ranks and threads of
/// `e`, as LocalReport::seconds counts them: after a step that is no part of it, rounds are repeated until they have
/// taken `seconds`. Cost per K: that, and at least two steps. The run's state is that before its first round.
MachineProfile measured_profile(Experiment& e, std::span<const int64_t> top_ks, double seconds);

}  // namespace evenkeel
