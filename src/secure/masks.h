/// \file  Hides integers modulo 2^b behind masks that cancel in the sum of all members of a round (Bonawitz et al.,
/// "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017). Each pair of members agrees on a
/// key; the one at the lower place adds the key's stream and the other subtracts it. A second mask, from a key of the
/// member's own, stays until enough members say that its upload has arrived.
///
///   upload_i = y_i + stream(K_i) + sum_{j > i} stream(K_ij) - sum_{j < i} stream(K_ij)   modulo 2^b
///
/// A stream is ChaCha20 output of its key, with section and block in the IV (crypto/chacha20.h). Streams are made and
/// added in blocks on all threads: a whole mask is never in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "crypto/secret.h"

namespace evenkeel::secure {

using crypto::Bytes32;
using crypto::Secret;

/// A member's place in the roster of a round, from 0.
using Place = int;

/// What a masked upload consists of. Each part has streams of its own.
struct RingVector {
  at::Tensor values;  ///< [N] int16, int32 or int64
  at::Tensor counts;  ///< [M] int64
};

/// A stream and its sign.
struct MaskKey {
  Secret key;
  bool subtract = false;
};

/// Returns K_ij, the key of two members. Both compute the same.
/// \param context  what the round is bound to (secure/round_context.h)
/// \throws kData when the other's public key gives an all-zero shared secret
Secret pair_key(const Bytes32& context, Place own, const Secret& own_secret, Place other, const Bytes32& other_public);
/// Returns K_i, the key of the member's own mask. \param seed  the member's 32 random bytes b_i
Secret self_key(const Bytes32& context, Place own, const Secret& seed);

/// Returns the keys of all masks of an upload.
/// \param publics  public mask keys of all members of the roster, by place
std::vector<MaskKey> upload_keys(const Bytes32& context, Place own, const Secret& mask_secret, const Secret& seed,
                                 const std::map<Place, Bytes32>& publics);

/// The secrets with which the server unmasks a sum: the seed of every survivor and the mask secret of every member
/// whose upload is not in the sum. Never both for one member.
struct Recovered {
  std::map<Place, Secret> seeds{};    ///< b_i of survivors
  std::map<Place, Secret> secrets{};  ///< mask secrets of lost members
};
/// Returns the keys that take the masks off the sum of the survivors' uploads.
/// \throws kInternal when a member is in both lists of `recovered`, or in none
std::vector<MaskKey> removal_keys(const Bytes32& context, const std::map<Place, Bytes32>& publics,
                                  const Recovered& recovered);

/// Adds all streams to both parts of `vector` in place. Cost per key: one ChaCha20 stream of its bytes, on all threads.
void add_streams(std::span<const MaskKey> keys, const RingVector& vector);

}  // namespace evenkeel::secure
