/// \file  Reads the records of a run folder for tables and charts. It reads neither model nor data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/format/config_values.h"
#include "base/plain/json.h"
#include "fed/config/run_config.h"
#include "fed/store/audit_summary.h"
#include "fed/store/round_records.h"

namespace evenkeel::records {

/// The records of one run.
struct RunRecords {
  std::string label;  ///< name of the folder, or its path if two runs share a name
  std::string arm;    ///< arm of a study; empty for other runs
  std::filesystem::path folder;
  std::string method;
  int64_t seed = 0;
  std::string model;   ///< model.path of the config
  std::string config;  ///< the settled config as TOML
  /// Values of the config's keys. clients.ranks is empty if it follows from method and budgets.
  config::Values settings;
  Json manifest;
  std::vector<fed::RoundRecord> rounds;  ///< in round order
  int64_t total_rounds = 0;              ///< rounds after which the run is complete
  bool stopped_early = false;            ///< train.stop or privacy.epsilon ended the run before train.rounds
  /// Traffic of scores that a federation's nodes computed, from the server's audit log; empty if the log has none.
  /// Traffic of training is in `rounds`.
  std::optional<fed::WorkTraffic> scoring{};
  std::vector<fed::EvaluationRecord> evaluations;  ///< in order of computation; a repeated score replaces the earlier

  /// Sets config, settings, seed, model and method.
  void set_config(const fed::RunConfig& of_run);
  /// Returns the highest round that has a score. 0 is the state before the first round, -1 means no scores.
  int64_t last_evaluated() const;
  /// Returns true if the run has scores, but none after its last round.
  bool lacks_final_scores() const;
  /// Returns the scores of one round in the order of `evaluations`, without scores of single clients
  /// (report/client_scores.h). A run computes scores by budget, then rank evaluation mode, then task.
  std::vector<scoring::TaskScore> scores(int64_t round) const;
};

/// Reads a run, also while a process works on it: an unfinished last line is left out.
/// \throws kIo when the folder holds no run; kCheckpoint naming file and line when a record is damaged; kConfig when
/// the config is not as the run wrote it
RunRecords load_run(const std::filesystem::path& folder);

/// Reads several runs and gives them distinct labels. \throws as load_run()
std::vector<RunRecords> load_runs(std::span<const std::filesystem::path> folders);

}  // namespace evenkeel::records
