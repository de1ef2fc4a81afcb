#include "secure/server_round.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "crypto/x25519.h"

namespace evenkeel::secure {
namespace {

constexpr int kMostSubsets = 10'000;  // of shares that are tried until a secret fits its public key or commitment

}  // namespace

ServerRound::ServerRound(RoundContext context) : context_(std::move(context)), digest_(digest_of(context_)) {
  total_ = {context_.format().zeros(context_.values), at::zeros({context_.counts}, at::kLong)};
}

void ServerRound::check_place(Place place) const {
  EK_CHECK(place >= 0 && place < context_.members(), kData, "place ", place, " of a roster of ", context_.members());
}

void ServerRound::take_keys(const KeysOfMember& keys, const Verify& verify) {
  check_place(keys.place);
  EK_CHECK(
      verify(context_.roster[static_cast<size_t>(keys.place)].fingerprint, text_of_keys(digest_, keys), keys.signature),
      kData, "the keys of client ", client(keys.place), " are not signed with its key");
  const auto [known, is_new] = keys_.emplace(keys.place, keys);
  EK_CHECK(is_new || (known->second.mask_public == keys.mask_public && known->second.share_public == keys.share_public),
           kData, "client ", client(keys.place), " sends other keys in the same attempt");
}

std::vector<KeysOfMember> ServerRound::all_keys() const {
  std::vector<KeysOfMember> all;
  for (const auto& [place, keys] : keys_) all.push_back(keys);
  return all;
}

void ServerRound::take_shares(const SharesOfMember& shares) {
  check_place(shares.place);
  EK_CHECK(std::ssize(shares.boxes) == context_.members() - 1 && !shares.boxes.contains(shares.place) &&
               shares.boxes.begin()->first >= 0 && shares.boxes.rbegin()->first < context_.members(),
           kData, "client ", client(shares.place), " sends shares for ", shares.boxes.size(), " members, expected ",
           context_.members() - 1);
  const auto [known, is_new] = shares_.emplace(shares.place, shares);
  EK_CHECK(is_new || known->second == shares, kData, "client ", client(shares.place),
           " sends other shares in the same attempt");
}

Inbox ServerRound::inbox_of(Place place) const {
  check_place(place);
  Inbox inbox;
  for (const auto& [from, shares] : shares_)
    if (from != place) inbox.boxes[from] = shares.boxes.at(place);
  return inbox;
}

bool ServerRound::take_upload(Place place, const RingVector& masked) {
  check_place(place);
  if (survivors_ || arrived_.contains(place)) return false;
  EK_CHECK(masked.values.sizes() == total_.values.sizes() && masked.counts.sizes() == total_.counts.sizes() &&
               masked.values.scalar_type() == total_.values.scalar_type() && masked.counts.scalar_type() == at::kLong,
           kData, "client ", client(place), " sends ", masked.values.numel(), " values and ", masked.counts.numel(),
           " counts, expected ", context_.values, " and ", context_.counts);
  add_to(total_.values, masked.values);
  add_to(total_.counts, masked.counts);
  arrived_.insert(place);
  return true;
}

const Survivors& ServerRound::close() {
  if (survivors_) return *survivors_;
  EK_CHECK(std::ssize(arrived_) >= context_.threshold, kData, "round ", context_.round + 1, ": ", arrived_.size(),
           " of ", context_.members(), " masked uploads arrived, the threshold is ", context_.threshold);
  Survivors survivors(context_.roster.size(), false);
  for (const Place place : arrived_) survivors[static_cast<size_t>(place)] = true;
  check_weight_shares(context_, survivors);
  return survivors_.emplace(std::move(survivors));
}

void ServerRound::take_signature(Place place, const std::string& signature, const Verify& verify) {
  check_place(place);
  EK_CHECK(survivors_ && (*survivors_)[static_cast<size_t>(place)], kData, "client ", client(place),
           " signs a set that it is not in");
  const auto text = text_of_survivors(digest_, secure::digest_of(keys_), *survivors_);
  EK_CHECK(verify(context_.roster[static_cast<size_t>(place)].fingerprint, text, signature), kData, "client ",
           client(place), " did not sign the set of survivors");
  signatures_[place] = signature;
}

void ServerRound::take_unmask(Place place, UnmaskReply reply) {
  check_place(place);
  EK_CHECK(survivors_, kData, "client ", client(place), " sends shares before there is a set of survivors");
  for (Place of = 0; of < context_.members(); ++of) {
    const bool survived = (*survivors_)[static_cast<size_t>(of)];
    EK_CHECK(reply.seeds.contains(of) == survived && reply.secrets.contains(of) != survived, kData, "client ",
             client(place), " sends a share of another kind for client ", client(of));
  }
  replies_.emplace(place, std::move(reply));
}

std::optional<std::vector<Share>> ServerRound::find_subset(std::vector<Share> shares, const Fits& fits) const {
  const auto size = static_cast<size_t>(context_.threshold);
  if (shares.size() < size) return {};
  const auto is_trusted = [&](const Share& share) { return !wrong_.contains(share.place); };
  RandomStream order(0, "subsets of shares", static_cast<uint64_t>(context_.round));
  for (int tried = 0; tried < kMostSubsets; ++tried) {
    if (tried > 0) order.shuffle(std::span(shares));
    if (tried < kMostSubsets / 2) std::stable_partition(shares.begin(), shares.end(), is_trusted);
    const auto subset = std::span<const Share>(shares).first(size);
    if (fits(subset)) return std::vector<Share>(subset.begin(), subset.end());
  }
  return {};
}

Secret ServerRound::joined_secret(Place of, bool is_seed) const {
  std::vector<Share> shares;
  for (const auto& [place, reply] : replies_) shares.push_back({place, (is_seed ? reply.seeds : reply.secrets).at(of)});
  const auto fits = [&](std::span<const Share> subset) {
    const Secret secret = joined(subset);
    return is_seed ? commitment_to(digest_, secret) == shares_.at(of).commitment
                   : crypto::x25519_public(secret) == keys_.at(of).mask_public;
  };
  const auto subset = find_subset(shares, fits);
  EK_CHECK(subset, kData, "round ", context_.round + 1, ": the ", is_seed ? "own mask" : "masks", " of client ",
           client(of), " cannot be joined from the shares of ", shares.size(), " members");
  for (const auto& share : shares) {  // whoever does not lie on the polynomial sent a wrong share
    auto other = *subset;
    const auto same =
        std::find_if(other.begin(), other.end(), [&](const Share& one) { return one.place == share.place; });
    if (same != other.end()) continue;
    other.front() = share;
    if (!fits(other)) wrong_.insert(share.place);
  }
  return joined(*subset);
}

RingVector ServerRound::sum() const {
  EK_CHECK(has_enough_shares(), kData, "round ", context_.round + 1, ": ", replies_.size(),
           " members helped to take the masks off, the threshold is ", context_.threshold);
  Recovered recovered;
  std::map<Place, Bytes32> publics;
  for (const auto& [place, keys] : keys_) {
    publics[place] = keys.mask_public;
    const bool survived = survivors_->at(static_cast<size_t>(place));
    (survived ? recovered.seeds : recovered.secrets)[place] = joined_secret(place, survived);
  }
  const RingVector sum{total_.values.clone(), total_.counts.clone()};
  add_streams(removal_keys(digest_, publics, recovered), sum);
  return sum;
}

}  // namespace evenkeel::secure
