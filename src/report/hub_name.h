/// \file  Names of repositories on the Hugging Face hub, as huggingface_hub's validate_repo_id takes them.
#pragma once

#include <string_view>

namespace evenkeel {

/// Whether `text` is "name" or "owner/name": each of 1 to 96 ASCII letters, digits, -, _ and ., beginning and ending
/// with a letter, a digit or _; without -- and .., and not ending in .git.
bool is_hub_name(std::string_view text);

}  // namespace evenkeel
