/// \file  Commands that messages suggest: with the program's path as it was called, and words that a shell takes as
/// they are meant. Example:  concat("go on with: ", command_line({"train", config, "--resume"}))
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

/// What command_line() begins with from now on; "evenkeel" before. \param name  argv[0]; empty: no change
void set_program_name(std::string_view name);

/// A word for a POSIX shell, in quotes where it needs them.
std::string shell_word(std::string_view text);

/// "build/evenkeel train 'my runs/a.toml' --resume".
std::string command_line(const std::vector<std::string>& words);

}  // namespace evenkeel
