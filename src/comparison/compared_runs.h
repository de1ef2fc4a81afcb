/// \file  Defines the runs of a comparison, and groups run folders into arms. study/definition/load_study.h reads the
/// runs of a study.
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
  std::optional<records::RunRecords> records{};  ///< empty: the run was not read
  std::string missing{};                         ///< reason why the run is not compared; empty: it is

  /// Returns the scores of the last evaluated round, without scores of single clients.
  std::vector<scoring::TaskScore> scores() const;
};

/// The runs of a comparison.
struct StudyRuns {
  std::string name, reference, endpoint;  ///< names of study, reference arm and measure; arms_of() sets no endpoint
  std::vector<std::string> arms;
  std::vector<int64_t> seeds;
  std::vector<ArmRun> runs;         ///< arm by arm, then by seed
  std::vector<std::string> free{};  ///< keys and sections of the config in which the study lets its arms differ

  /// Returns the run of an arm and a seed, or null. The pointer refers into `runs`.
  const ArmRun* find(const std::string& arm, int64_t seed) const;
  /// Returns copies of the records of all runs that have records.
  std::vector<records::RunRecords> records() const;
};

/// Groups runs into arms. Runs belong to one arm if their configs differ only in the seed and in keys without an effect
/// on figures, such as name and folder (fed/config/key_effects.h). An arm has the name of its method, or of its first
/// run if several arms have that method. The first arm is the reference. A run that repeats a seed of an arm begins a
/// new arm, so no run counts twice. If an arm has no run of some seed, a missing run is added.
StudyRuns arms_of(std::span<const records::RunRecords> runs);

/// Returns the name of the first measure that all runs with scores have, in the order of measures(); the first of
/// measures() if there is none. It is the endpoint of a comparison that names none.
std::string default_endpoint(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::comparison
