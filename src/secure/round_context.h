/// \file  Defines what all keys, shares and signatures of a masked round are bound to: the run, the round, the attempt,
/// the scale and the members. Rounds that differ in any of these have independent keys.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "secure/masks.h"
#include "secure/ring.h"

namespace evenkeel::secure {

/// A member of the roster.
struct Member {
  int64_t client = 0;         ///< id in the run
  std::string fingerprint{};  ///< fingerprint of the key with which the member signs
  double weight = 0;          ///< p_c, fixed before the round
  bool operator==(const Member& other) const = default;
};

/// The terms of one attempt at a round. The place of a member is its index in the roster.
struct RoundContext {
  std::string run{}, config{};  ///< name of the run; digest of its config
  int64_t round = 0, attempt = 0;
  int64_t bits = 32, exponent = 0;  ///< as in RingFormat
  double range = 0;                 ///< as in RingFormat
  int64_t threshold = 0;            ///< fewest members whose shares unmask the sum
  int64_t values = 0, counts = 0;   ///< lengths of the two parts of an upload
  std::vector<Member> roster{};
  /// Variances of the noise that a member adds to its values and to its last count; 0: none.
  int64_t variance = 0, indicator_variance = 0;
  double clip = 0;  ///< largest norm of a member's change, if there is noise

  int members() const { return static_cast<int>(roster.size()); }
  RingFormat format() const { return {.bits = bits, .exponent = static_cast<int>(exponent), .range = range}; }
  bool operator==(const RoundContext& other) const = default;
};

/// Returns the context as JSON without spaces, keys in a fixed order and floating-point numbers in hexadecimal.
std::string canonical(const RoundContext& context);
/// Returns SHA-256 of canonical().
Bytes32 digest_of(const RoundContext& context);

/// Fewest members whose sum is unmasked: of a sum of two, each of the two knows the other's part.
inline constexpr int64_t kFewestMembers = 3;
/// Largest share of one member in the weight of a sum: with more, the sum would be its upload.
inline constexpr double kMostShare = 0.95;

/// What the owner of a node agreed to.
struct NodeRules {
  std::string run{}, config{};         ///< as in RoundContext
  std::string own_key{};               ///< fingerprint of the node's key
  std::set<std::string> peers{};       ///< fingerprints that may be in a roster; empty: any
  int64_t min_peers = kFewestMembers;  ///< fewest members of a roster and of a sum; 3: this node and two others
};

/// Checks the terms that a server proposes. \return the node's place
/// \throws kData naming the rule: another run or config; a roster that is too small or too large, names a client or key
/// twice, lacks the node's key or has a key that is no peer's; a threshold of half the roster or less, below
/// kFewestMembers or above the roster; weights outside [0, 1] or that add up to more than 1; an exponent that does not
/// follow from bits, range, members and variance; weights that check_weight_shares() refuses; kConfig as
/// RingFormat::of()
Place check_context(const RoundContext& context, const NodeRules& rules);

/// Checks that no member of a sum has more than kMostShare of the sum's weight.
/// \param members  true: the member at this place is in the sum
/// \throws kData naming the client
void check_weight_shares(const RoundContext& context, const std::vector<bool>& members);

}  // namespace evenkeel::secure
