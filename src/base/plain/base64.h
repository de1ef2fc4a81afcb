/// \file  Encodes and decodes Base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace evenkeel {

std::string to_base64(std::string_view bytes);
/// Decodes `text`; returns nothing unless it is non-empty padded Base64 on one line.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace evenkeel
