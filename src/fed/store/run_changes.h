/// \file  What may change of a run that goes on: test files that no score was computed from yet, and the number of its
/// rounds. Each change is recorded in the run's manifest, under "changes".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/plain/sealed.h"
#include "fed/config/experiment_config.h"
#include "fed/store/round_records.h"

namespace evenkeel {

struct RunChanges {
  std::vector<std::filesystem::path> files{};  ///< that have other bytes than the manifest says
  std::optional<int64_t> rounds{};             ///< the new train.rounds
  bool any() const { return !files.empty() || rounds; }
};

/// Why `file`, which has changed since the run was made, may not change; empty where it may: it is a test file, an
/// encoder's or a baseline, and none of `scores` was computed from it.
/// \param training_files  as in the run's partition.json
std::string why_fixed(const std::filesystem::path& file, const ExperimentConfig& config,
                      std::span<const std::string> training_files, std::span<const EvaluationRecord> scores);

/// Checks that a run whose last committed round is `done` may have `rounds` in all. \throws kConfig when some round
/// that is done would have been another one.
void check_extension(const ExperimentConfig& config, int64_t done, int64_t rounds);

/// The manifest of a run with `changes`. \param config  with them \param done  the last committed round
OrderedJson changed_manifest(const OrderedJson& manifest, const RunChanges& changes, const ExperimentConfig& config,
                             int64_t done);

/// Whether `text` is the config.toml that a process which was stopped while it changed the manifest left behind.
bool is_config_before_change(const Json& manifest, std::string_view text);

}  // namespace evenkeel
