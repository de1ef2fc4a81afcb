/// \file  Defines the flag --method, which names a class of a method in Python (src/host/add_method.h).
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace evenkeel::apps {

/// The methods that a command's --method names. They are in the registry when the command's callback is called.
struct MethodFlag {
  std::vector<std::string> sources;  ///< FILE:CLASS each
  std::vector<std::string> names;    ///< of the methods, in the same order
  bool changed = false;              ///< --changed-method

  /// Adds --method. \param text  what it is for, in the help
  void add_to(CLI::App& command, const std::string& text);
  /// Adds --method, whose first class the command's config then names, and --changed-method.
  void add_choice_to(CLI::App& command);
  /// Returns the setting of a config that chooses the method; none without --method.
  std::vector<std::string> settings() const;
  /// Returns FILE:CLASS by the name of the method.
  std::map<std::string, std::string> by_name() const;
  /// Returns the flags by which another process finds the same classes: those of FILE, also for a class that came by a
  /// socket. A class without a file is left out.
  std::vector<std::string> words() const;
  /// Checks that a run has a use for the classes: `settings` choose no other method, or the file has keys of one of
  /// them.
  /// \param file  the config \param settings  those of --set \throws kConfig, kIo
  void check_choice(const std::string& file, const std::vector<std::string>& settings) const;
};

/// Checks that --method is given with --run only. \throws kConfig
void check_method_of_run(const MethodFlag& flag, const std::string& run);

}  // namespace evenkeel::apps
