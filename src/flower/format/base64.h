/// \file  Base64, as headers and key lines carry bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace evenkeel::wire {

std::string to_base64(std::string_view bytes);
/// Nothing when `text` is no padded base64 on one line.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace evenkeel::wire
