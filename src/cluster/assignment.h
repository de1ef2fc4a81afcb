/// \file  Assigns the clients of a round to ranks. The assignment changes the duration of a round but not its result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::cluster {

/// Assigns clients in order of decreasing cost, each to the rank with the lowest total cost so far; ties go to the
/// lowest rank. Rank 0 gets the first client.
/// \param costs  one per client
/// \return indices into `costs` for each rank, in the order of assignment
std::vector<std::vector<size_t>> assign_by_cost(std::span<const double> costs, int ranks);

}  // namespace evenkeel::cluster
