/// \file  What a command line asks of a run, and how that compares with what a run was made with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel {

/// A config file, and changes to it as `--set` takes them.
struct RunRequest {
  std::filesystem::path file;
  std::vector<std::string> settings{};
  std::string out{};  ///< the run folder; empty: as the config says

  /// The config, not resolved. \param before  settings of an earlier request, which these follow
  ExperimentConfig config(std::span<const std::string> before = {}) const;
  /// Whether a setting begins so: "model.device=", or "model.products." for any key of a table.
  bool says(std::string_view key) const;
  /// The train.rounds that the settings say.
  std::optional<int64_t> rounds() const;
};

/// "train.rounds is 9, in the run 3" for every key that differs; output.dir does not count. Both are resolved.
std::vector<std::string> differences(const ExperimentConfig& asked, const ExperimentConfig& run);

/// `asked`, resolved; what it leaves to the machine (threads, arithmetic, where $EVENKEEL_DATA is) is as in the run.
ExperimentConfig resolved_like(ExperimentConfig asked, const ExperimentConfig& run);

}  // namespace evenkeel
