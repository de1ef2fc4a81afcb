/// \file  What a run folder says of a run, read back for tables and charts. Reads records only: no model, no data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/plain/json.h"
#include "fed/store/round_records.h"

namespace evenkeel {

struct RunRecords {
  std::string label;  ///< the folder's name; its path where two runs share a name
  std::filesystem::path folder;
  std::string method;
  int64_t seed = 0;
  std::string model;   ///< as in the config
  std::string config;  ///< resolved TOML
  Json manifest;
  std::vector<RoundRecord> rounds;            ///< in round order
  std::vector<EvaluationRecord> evaluations;  ///< in the order they were made; a repeated one replaces the first

  /// The last round that was evaluated; -1 when none was.
  int64_t last_evaluated() const;
  /// Scores of one round, in the order of the run's config; those of single clients are report/client_scores.h's.
  std::vector<TaskScore> scores(int64_t round) const;
};

/// Reads one run, also while it is being made: a line that is still being written is left out. A run of a version
/// without checksums is read with a warning. \throws kIo when no run lives there, kCheckpoint naming file and line when
/// a record is damaged.
RunRecords load_run(const std::filesystem::path& folder);

/// Several runs, with labels that differ.
std::vector<RunRecords> load_runs(std::span<const std::filesystem::path> folders);

}  // namespace evenkeel
