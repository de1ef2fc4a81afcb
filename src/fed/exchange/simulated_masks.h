/// \file  Masks of a round in which all clients are in this process or in the ranks of its run. Every key follows from
/// the seed of the config, so nothing is hidden from anybody. For tests, and for studies of what masks cost.
#pragma once

#include <cstdint>
#include <span>

#include "fed/exchange/noisy_summand.h"
#include "secure/masks.h"

namespace evenkeel::fed {

/// The simulated keys of the clients of one round.
class SimulatedMasks {
 public:
  /// \param roster  ids of all clients that were drawn, by place
  SimulatedMasks(uint64_t seed, int64_t round, std::vector<int64_t> roster);

  /// Adds all masks of a client to its summand, in place. \throws kInternal for a client that was not drawn
  void add(int64_t client, const secure::RingVector& summand) const;
  /// Takes the masks off the sum of the summands of `survivors`, in place.
  void remove(std::span<const int64_t> survivors, const secure::RingVector& sum) const;

 private:
  crypto::Secret secret(std::string_view purpose, secure::Place place) const;

  uint64_t seed_;
  int64_t round_;
  std::vector<int64_t> roster_;
  secure::Bytes32 context_{};
  std::map<secure::Place, secure::Bytes32> publics_{};
};

/// The noise of simulated clients ([privacy] unit = "client" with [secure_aggregation]). It has no privacy account, and
/// its keys follow from the seed.
class SimulatedNoise : public ClientNoise {
 public:
  explicit SimulatedNoise(uint64_t seed) : seed_(seed) {}
  crypto::Secret charge(const Task& task, const SummedTerms& terms, std::span<const int64_t> change) override;

 private:
  uint64_t seed_;
};

/// Returns the key of a simulated client's stochastic rounding to 16 bits.
crypto::Secret rounding_key(uint64_t seed, int64_t round, int64_t client);

}  // namespace evenkeel::fed
