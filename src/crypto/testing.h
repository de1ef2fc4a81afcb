/// \file  Helpers for tests with cryptographic test vectors.
#pragma once

#include <string>
#include <string_view>

#include "base/plain/hex.h"
#include "base/plain/sha256.h"
#include "crypto/secret.h"

namespace evenkeel::testing {

inline crypto::Bytes32 sha256_of(std::string_view text) {
  Sha256 digest;
  digest.update(text);
  return digest.bytes();
}
/// Returns the SHA-256 of a text as a secret. Test vectors name secrets by such texts.
inline crypto::Secret secret_of(std::string_view text) { return crypto::Secret(sha256_of(text)); }

inline std::string hex(std::span<const uint8_t> bytes) { return to_hex(bytes); }
inline std::string hex(std::string_view text) { return hex(crypto::bytes_of(text)); }

}  // namespace evenkeel::testing
