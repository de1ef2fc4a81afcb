/// \file  Who takes part in a round, and with what weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/protocol.h"

namespace evenkeel {

/// max(1, round(participation * count))
int64_t drawn_clients(int64_t count, double participation);

/// Ids drawn uniformly without replacement, in id order: drawn_clients() of them. Depends on (seed, round) alone.
/// Source: FedAvg (McMahan et al. 2017).
std::vector<int64_t> sample_participants(int64_t count, double participation, uint64_t seed, int64_t round);

/// The participants of `round` with p_c = |D_c| / sum |D_c'| over them.
RoundView draw_round(std::span<const ClientProfile> clients, double participation, uint64_t seed, int64_t round);

/// The round without the clients that were lost in it: as if they had not been drawn. \throws kData when fewer than
/// `quorum` are left.
RoundView without(RoundView round, std::span<const int64_t> lost, int64_t quorum = 1);

}  // namespace evenkeel
