/// \file  Derives keys with HKDF over SHA-256 (RFC 5869). Does not depend on LibTorch.
/// Example:  const Secret key = hkdf(salt, shared.view(), "evenkeel secagg 1 self");
#pragma once

#include <string_view>

#include "crypto/secret.h"

namespace evenkeel::crypto {

/// Returns the first 32 bytes of HKDF (extract, then expand). \throws kInternal when OpenSSL fails
Secret hkdf(std::string_view salt, std::string_view input_key, std::string_view info);

/// Returns the first 32 bytes of HKDF-Expand, for a key that is uniformly random already. \throws as hkdf()
Secret hkdf_expand(const Secret& key, std::string_view info);

/// Appends `value` to `text` as 2 or 8 bytes, highest byte first: the form of numbers in this project's info texts.
void append_be16(std::string& text, uint16_t value);
void append_be64(std::string& text, uint64_t value);

}  // namespace evenkeel::crypto
