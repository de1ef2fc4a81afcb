#include "fed/exchange/simulated_masks.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/sha256.h"
#include "crypto/hkdf.h"
#include "crypto/x25519.h"

namespace evenkeel::fed {
namespace {

/// Derives 32 bytes that everybody who has the config can derive.
crypto::Secret derived(std::string_view purpose, uint64_t seed, int64_t round, int64_t client) {
  std::string input;
  for (const uint64_t number : {seed, static_cast<uint64_t>(round), static_cast<uint64_t>(client)})
    crypto::append_be64(input, number);
  return crypto::hkdf("evenkeel secagg simulated", input, purpose);
}

}  // namespace

SimulatedMasks::SimulatedMasks(uint64_t seed, int64_t round, std::vector<int64_t> roster)
    : seed_(seed), round_(round), roster_(std::move(roster)) {
  Sha256 digest;
  digest.update(concat("evenkeel secagg simulated 1, seed ", seed, ", round ", round, ", clients ", join(roster_)));
  context_ = digest.bytes();
  for (size_t i = 0; i < roster_.size(); ++i) {
    const auto place = static_cast<secure::Place>(i);
    publics_[place] = crypto::x25519_public(secret("mask", place));
  }
}

crypto::Secret SimulatedMasks::secret(std::string_view purpose, secure::Place place) const {
  return derived(purpose, seed_, round_, roster_.at(static_cast<size_t>(place)));
}

void SimulatedMasks::add(int64_t client, const secure::RingVector& summand) const {
  const auto found = std::find(roster_.begin(), roster_.end(), client);
  EK_CHECK(found != roster_.end(), kInternal, "client ", client, " has no place in the masks of round ", round_ + 1);
  const auto place = static_cast<secure::Place>(found - roster_.begin());
  secure::add_streams(secure::upload_keys(context_, place, secret("mask", place), secret("self", place), publics_),
                      summand);
}

void SimulatedMasks::remove(std::span<const int64_t> survivors, const secure::RingVector& sum) const {
  secure::Recovered recovered;
  for (const auto& [place, key] : publics_) {
    const int64_t client = roster_[static_cast<size_t>(place)];
    if (std::find(survivors.begin(), survivors.end(), client) != survivors.end())
      recovered.seeds[place] = secret("self", place);
    else
      recovered.secrets[place] = secret("mask", place);
  }
  secure::add_streams(secure::removal_keys(context_, publics_, recovered), sum);
}

crypto::Secret SimulatedNoise::charge(const Task& task, const SummedTerms&, std::span<const int64_t>) {
  return derived("noise", seed_, task.round, task.client.id);
}

crypto::Secret rounding_key(uint64_t seed, int64_t round, int64_t client) {
  return derived("rounding", seed, round, client);
}

}  // namespace evenkeel::fed
