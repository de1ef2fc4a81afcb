#include "secure/round_messages.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/sha256.h"
#include "crypto/hkdf.h"

namespace evenkeel::secure {

std::string text_of_keys(const Bytes32& context, const KeysOfMember& keys) {
  std::string text = concat("evenkeel secagg 1 keys", crypto::view_of(context));
  crypto::append_be16(text, static_cast<uint16_t>(keys.place));
  return text.append(crypto::view_of(keys.mask_public)).append(crypto::view_of(keys.share_public));
}

Bytes32 digest_of(const std::map<Place, KeysOfMember>& keys) {
  Sha256 digest;
  for (const auto& [place, own] : keys) {
    digest.update(crypto::view_of(own.mask_public));
    digest.update(crypto::view_of(own.share_public));
  }
  return digest.bytes();
}

std::string text_of_survivors(const Bytes32& context, const Bytes32& keys, const Survivors& survivors) {
  std::string text = concat("evenkeel secagg 1 survivors", crypto::view_of(context), crypto::view_of(keys));
  for (const bool arrived : survivors) text += arrived ? '1' : '0';
  return text;
}

Bytes32 commitment_to(const Bytes32& context, const Secret& seed) {
  Sha256 digest;
  digest.update(crypto::view_of(context));
  digest.update("self");
  digest.update(seed.view());
  return digest.bytes();
}

int64_t count_of(const Survivors& survivors) { return std::count(survivors.begin(), survivors.end(), true); }

}  // namespace evenkeel::secure
