/// \file  Defines the messages of server and nodes in the five phases of a masked round. The transport encodes them.
///
///   1 keys       node: KeysOfMember
///   2 shares     server: all KeysOfMember;   node: SharesOfMember
///   3 training   server: Inbox;              node: the masked upload
///   4 survivors  server: Survivors;          node: a signature
///   5 unmask     server: UnmaskRequest;      node: UnmaskReply
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "secure/masks.h"

namespace evenkeel::secure {

/// The public keys of a member in one attempt, signed with the key of Member::fingerprint.
struct KeysOfMember {
  Place place = 0;
  Bytes32 mask_public{}, share_public{};
  std::string signature{};
  bool operator==(const KeysOfMember& other) const = default;
};

/// A member's shares for the others, each in a box that only its addressee opens.
struct SharesOfMember {
  Place place = 0;
  Bytes32 commitment{};                  ///< to the seed of its own mask
  std::map<Place, std::string> boxes{};  ///< by addressee
  bool operator==(const SharesOfMember& other) const = default;
};

/// The boxes that a member receives from the others.
struct Inbox {
  std::map<Place, std::string> boxes{};  ///< by sender
};

/// Which uploads arrived, by place.
using Survivors = std::vector<bool>;

/// A set of survivors and its signatures, by place.
struct UnmaskRequest {
  Survivors survivors{};
  std::map<Place, std::string> signatures{};
};

/// A member's shares that take masks off: of the seed of each survivor and of the mask secret of each lost member.
struct UnmaskReply {
  std::map<Place, Secret> seeds{}, secrets{};
};

/// Signs a text with the key of the node.
using Sign = std::function<std::string(std::string_view text)>;
/// Returns true if the key with this fingerprint signed the text.
using Verify = std::function<bool(const std::string& fingerprint, std::string_view text, std::string_view signature)>;

/// Return the texts that are signed.
std::string text_of_keys(const Bytes32& context, const KeysOfMember& keys);
/// \param keys  digest_of() the keys of all members, so that signatures are void when an attempt begins again
std::string text_of_survivors(const Bytes32& context, const Bytes32& keys, const Survivors& survivors);
/// Returns SHA-256 of the public keys of all members.
Bytes32 digest_of(const std::map<Place, KeysOfMember>& keys);
/// Returns the commitment to the seed of a member's own mask.
Bytes32 commitment_to(const Bytes32& context, const Secret& seed);
/// Returns the number of survivors.
int64_t count_of(const Survivors& survivors);

}  // namespace evenkeel::secure
