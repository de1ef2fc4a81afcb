/// \file  Formats commands that messages suggest, with the program's path from argv[0] and with quotes for a shell.
/// Example:  concat("resume with: ", command_line({"train", config, "--resume"}))
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

/// Sets the program name that command_line() puts first; the default is "evenkeel". Call it in main(), before threads
/// exist.
/// \param name  argv[0]; an empty name changes nothing
void set_program_name(std::string_view name);

/// Returns `text` as one word for a POSIX shell, in single quotes if it needs them.
std::string shell_word(std::string_view text);

/// Returns the program name and `words` as one command, e.g. "build/evenkeel train 'my runs/a.toml' --resume".
std::string command_line(const std::vector<std::string>& words);

}  // namespace evenkeel
