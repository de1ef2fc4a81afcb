/// \file  Checks names of repositories on the Hugging Face hub. The rules are those of validate_repo_id in
/// huggingface_hub 2.4. Older versions allow longer owners and letters outside ASCII.
#pragma once

#include <string_view>

namespace evenkeel {

/// Returns true if `text` is "name" or "owner/name". Each part has 1 to 96 ASCII letters, digits, -, _ and ., and
/// begins and ends with a letter, a digit or _. The whole text must not contain -- or .., and must not end in .git.
bool is_hub_name(std::string_view text);

}  // namespace evenkeel
