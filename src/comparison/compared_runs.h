/// \file  Reads the runs of a comparison: those of a study's folder, or run folders that are grouped into arms.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::comparison {

/// A run of a comparison.
struct ArmRun {
  std::string arm;
  int64_t seed = 0;
  std::optional<records::RunRecords> records{};  ///< set unless the run is missing
  std::string missing{};                         ///< reason why it is missing; empty: it is not

  /// Returns the scores of the last evaluated round, without those of single clients.
  std::vector<scoring::TaskScore> scores() const;
};

/// The runs of a comparison.
struct StudyRuns {
  std::string name, reference, endpoint;  ///< name of the study; arm and measure for comparisons
  std::vector<std::string> arms;
  std::vector<int64_t> seeds;
  std::vector<ArmRun> runs;         ///< arm by arm, then by seed
  std::vector<std::string> free{};  ///< keys and sections of the config in which the study lets its arms differ

  /// Returns the run of an arm and a seed, or null. The pointer refers into `runs`.
  const ArmRun* find(const std::string& arm, int64_t seed) const;
  /// Returns the records of all runs that are not missing, labelled "ARM/seed-SEED".
  std::vector<records::RunRecords> records() const;
};

/// Groups runs into arms. Runs belong to one arm if their configs differ only in the seed and in keys without an effect
/// on figures, such as name and folder (fed/config/key_effects.h). An arm has the name of its method, or of its first
/// run if several arms have that method. The first arm is the reference. A run that repeats a seed of an arm belongs to
/// another arm, so no run counts twice.
StudyRuns arms_of(std::span<const records::RunRecords> runs);

/// Returns the first measure that all runs with scores have, in the order of measures(), or the first of all if there
/// is none. It is the endpoint of a comparison that names no other.
std::string default_endpoint(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::comparison
