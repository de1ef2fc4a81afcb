/// \file  Writes bytes as hexadecimal digits, and recognises such text. Does not depend on LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

/// Returns two digits for each byte, the high one first: 0 to 9 and a to f.
std::string to_hex(std::span<const uint8_t> bytes);

/// Returns true if `text` is exactly `digits` digits as to_hex() writes them, without capital letters.
bool is_hex(std::string_view text, size_t digits);

}  // namespace evenkeel
