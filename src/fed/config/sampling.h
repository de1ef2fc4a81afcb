/// \file  Draws the participants of a round and computes their weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "crypto/secret.h"
#include "methods/protocol.h"

namespace evenkeel::fed {

/// Returns the number of clients drawn per round: round(participation * count), at least 1 and at most count.
int64_t drawn_clients(int64_t count, double participation);

/// Draws the ids of drawn_clients() clients uniformly without replacement. The result is in id order and depends only
/// on the arguments. \param round  0 = the first
/// Source: FedAvg (McMahan et al. 2017).
std::vector<int64_t> sample_participants(int64_t count, double participation, uint64_t seed, int64_t round);

/// Draws the participants of `round` (0 = the first) among the clients that take part in it, as sample_participants(),
/// and gives them weights p_c = |D_c| / sum |D_c'|, or equal weights. The result is empty if no client takes part.
methods::RoundView draw_round(std::span<const methods::ClientProfile> clients, double participation, uint64_t seed,
                              int64_t round, bool equal_weights = false);

/// Returns the key of draws and noise of a run whose privacy is simulated. Everybody who knows the seed can compute it.
crypto::Secret seeded_privacy_key(uint64_t seed);

/// Draws each client that takes part in `round` independently, with a probability in (0, 1]. Client i is drawn when the
/// first 8 bytes of HKDF-Expand(key, "evenkeel dp sample 1" 0 round i), as a little-endian number, are below
/// probability * 2^64. In the argument, 0 is one byte, and round and i are 8 bytes each, big-endian.
/// Weights are as in draw_round(). The result may be empty.
methods::RoundView draw_poisson(std::span<const methods::ClientProfile> clients, double probability,
                                const crypto::Secret& key, int64_t round, bool equal_weights);

/// Returns the round without the lost clients, with weights as if they had not been drawn.
/// \throws kData when fewer than `quorum` clients are left
methods::RoundView without(methods::RoundView round, std::span<const int64_t> lost, int64_t quorum = 1);

}  // namespace evenkeel::fed
