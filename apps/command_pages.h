/// \file  Describes the commands and flags of the program as plain data, and writes them as a manual page and as
/// completions for shells. The data comes from the definitions that --help prints.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace evenkeel::apps {

/// A flag or a positional argument.
struct FlagPage {
  std::vector<std::string> names{};  ///< "--set", "-h"; a positional argument has one name, without dashes
  std::string value{};               ///< type of its value, e.g. "TEXT"; empty: it takes none
  std::string text;                  ///< what it does
  bool required = false;
  bool repeated = false;  ///< takes several values
};

/// A command, or the program itself with the flags that are given before a command.
struct CommandPage {
  std::string name, summary;
  std::string text;  ///< examples and details; paragraphs are separated by empty lines
  std::vector<FlagPage> flags{}, arguments{};
};

/// Describes the program.
CommandPage program_page(const CLI::App& program);
/// Describes each command, in the order of --help.
std::vector<CommandPage> command_pages(const CLI::App& program);

/// Returns a manual page of section 1 as roff. \param version  version of the program
std::string manual_page(const CLI::App& program, const std::string& version);

/// Returns the names of the shells that completion_script() knows.
std::vector<std::string> completion_shells();
/// Returns a script that completes commands, flags and file names in `shell`. \throws kConfig for an unknown shell
std::string completion_script(const CLI::App& program, const std::string& shell);

}  // namespace evenkeel::apps
