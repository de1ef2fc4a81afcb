/// \file  Which rank trains which clients of a round. The deal changes how long a round takes, and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::cluster {

/// Largest first, each to the rank that has least so far; the lowest of those that have alike. Rank 0 gets the first.
/// \param costs  one per client. \return indices into it, per rank, in the order they were dealt
std::vector<std::vector<size_t>> deal(std::span<const double> costs, int ranks);

}  // namespace evenkeel::cluster
