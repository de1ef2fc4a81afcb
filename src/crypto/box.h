/// \file  Encrypts and authenticates one short message with ChaCha20-Poly1305 (RFC 8439). Does not depend on LibTorch.
/// Example:  const std::string box = seal_box(key, context, text);  const auto text = open_box(key, context, box);
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "crypto/secret.h"

namespace evenkeel::crypto {

inline constexpr size_t kBoxTag = 16;  ///< bytes by which a box exceeds its text: the tag

/// Encrypts `text`. The nonce is twelve zero bytes, so REQUIRES a key that seals no second text.
/// \param associated  associated data: authenticated, not stored in the box
std::string seal_box(const Secret& key, std::string_view associated, std::string_view text);

/// Returns the text, which the caller must wipe; nothing if authentication fails.
std::optional<std::string> open_box(const Secret& key, std::string_view associated, std::string_view box);

}  // namespace evenkeel::crypto
