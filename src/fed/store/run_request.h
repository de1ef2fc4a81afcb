/// \file  Describes the config that a command line requests, and compares it with the config of an existing run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// A config file and the settings that change it, as `--set` takes them.
struct RunRequest {
  std::filesystem::path file;
  std::vector<std::string> settings{};
  std::string out{};  ///< the run folder; empty: output.dir of the config

  /// Loads the config; it is not settled. \param before  settings of an earlier request, applied first
  ExperimentConfig config(std::span<const std::string> before = {}) const;
  /// Returns true if a setting begins with `key`: "model.device=" finds that key, "model.products." any key of the
  /// table.
  bool says(std::string_view key) const;
  /// Returns train.rounds if the settings contain it. \param before  as config() has it
  std::optional<int64_t> rounds(std::span<const std::string> before) const;
};

/// Lists the keys that differ, as "train.rounds is 9, in the run 3". output.dir is not compared. Both configs must be
/// settled.
std::vector<std::string> difference_lines(const ExperimentConfig& asked, const ExperimentConfig& run);

/// Settles `asked`. Values that it leaves to the machine (threads, arithmetic, location of $EVENKEEL_DATA) are taken
/// from the run.
ExperimentConfig resolved_like(ExperimentConfig asked, const ExperimentConfig& run);

}  // namespace evenkeel::fed
