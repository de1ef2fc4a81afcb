/// \file  Checks the text of fingerprints of public keys.
#pragma once

#include <string_view>

namespace evenkeel {

/// Returns true if `text` is the SHA-256 fingerprint of a key as `evenkeel keygen` and `ssh-keygen -l` print it:
/// "SHA256:" and 43 characters of Base64 without padding.
bool is_key_fingerprint(std::string_view text);

}  // namespace evenkeel
