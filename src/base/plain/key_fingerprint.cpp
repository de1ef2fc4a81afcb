#include "base/plain/key_fingerprint.h"

#include <string>

#include "base/plain/base64.h"

namespace evenkeel {

bool is_key_fingerprint(std::string_view text) {
  constexpr std::string_view kKind = "SHA256:";
  constexpr size_t kDigest = 32;  // bytes
  if (!text.starts_with(kKind)) return false;
  const auto digits = std::string(text.substr(kKind.size())) + "=";
  const auto digest = from_base64(digits);
  // The last digit has two unused bits. Only one text of a digest is a fingerprint.
  return digest && digest->size() == kDigest && to_base64(*digest) == digits;
}

}  // namespace evenkeel
