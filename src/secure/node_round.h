/// \file  A node's half of one attempt at a masked round, without sockets and files. It trusts nobody: every function
/// checks what the server says, and refuses in one line what would let the server read a single upload.
///
/// The rules: the node agreed to the terms (check_context()). One set of keys, one upload and one set of survivors per
/// attempt. One sum per round: after it helped to unmask a round, it helps with no other set and no other attempt of
/// that round. It never gives both shares of one member. It gives shares only for a set of survivors that it is in, in
/// which no member has nearly all the weight, that at least `threshold` and NodeRules::min_peers members are in, and
/// that at least `threshold` signed.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "secure/round_context.h"
#include "secure/round_messages.h"
#include "secure/shamir.h"

namespace evenkeel::secure {

/// What a node keeps of an attempt. It is written to the node's disk before each answer, so that a node that was killed
/// gives the same answers again, and wiped after the round is committed.
struct NodeAttempt {
  RoundContext context{};
  Secret mask_secret{}, share_secret{}, seed{};  ///< private keys for masks and boxes, seed of its own mask
  std::map<Place, KeysOfMember> keys{};          ///< of all members, after phase 2
  /// The node's shares of each member's seed and mask secret, by place: its own after phase 2, others' after phase 3.
  std::map<Place, Secret> seed_shares{}, secret_shares{};
  std::optional<SharesOfMember> shares{};  ///< what it sent in phase 2
  std::optional<Bytes32> upload{};         ///< SHA-256 of its summand before it was masked
  std::optional<Survivors> signed_set{};   ///< the set that it signed in phase 4
};

/// The sum that a node helped to unmask in a round.
struct SummedSet {
  Bytes32 context{};
  Survivors survivors{};
  bool operator==(const SummedSet& other) const = default;
};
/// A node's list of the rounds that it helped to unmask. It outlives the attempt and is never shortened.
class SummedRounds {
 public:
  virtual ~SummedRounds() = default;
  /// Returns the set of a round; nothing if the node did not help to unmask the round.
  virtual std::optional<SummedSet> find(const std::string& run, int64_t round) const = 0;
  /// Stores an entry durably before it returns.
  virtual void store(const std::string& run, int64_t round, const SummedSet& set) = 0;
};

/// One attempt. Repeated messages get the same answers. \throws kData from all functions, naming the rule that the
/// server's message breaks; the state is then as before
class NodeRound {
 public:
  /// Begins an attempt with new keys, phase 1. \throws as check_context(); kData when the node helped to unmask another
  /// attempt at the round
  NodeRound(RoundContext context, const NodeRules& rules, const SummedRounds& summed);
  /// Continues an attempt.
  NodeRound(NodeAttempt attempt, const NodeRules& rules);

  const NodeAttempt& attempt() const { return attempt_; }
  Place place() const { return place_; }

  /// Phase 1: returns the node's public keys with their signature.
  KeysOfMember keys(const Sign& sign) const;
  /// Phase 2: checks the keys of all members and splits its secrets among them.
  const SharesOfMember& take_keys(std::span<const KeysOfMember> keys, const Verify& verify);
  /// Phase 3: opens the boxes of all other members.
  void take_shares(const Inbox& inbox);
  /// Phase 3: masks the summand in place. A second summand of the attempt is refused unless it equals the first.
  void mask(const RingVector& summand);
  /// Phase 4: signs the set of survivors.
  std::string sign(const Survivors& survivors, const Sign& sign);
  /// Phase 5: returns shares of each other member and of itself, of the kind that the set allows.
  UnmaskReply unmask(const UnmaskRequest& request, const Verify& verify, SummedRounds& summed);

 private:
  void check_keys(std::span<const KeysOfMember> keys, const Verify& verify) const;
  void check_survivors(const Survivors& survivors) const;
  void check_signatures(const UnmaskRequest& request, const Verify& verify) const;
  std::string text_of(const Survivors& survivors) const;
  Secret box_key(Place from, Place to) const;
  std::string box_text(Place from, Place to) const;
  SharesOfMember split_secrets();
  std::map<Place, Bytes32> publics() const;

  NodeAttempt attempt_;
  int64_t min_peers_;
  Bytes32 digest_;
  Place place_;
};

}  // namespace evenkeel::secure
