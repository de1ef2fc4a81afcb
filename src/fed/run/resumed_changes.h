/// \file  Collects the changes that a request makes in an existing run, and writes them into its folder. What a resumed
/// run may change is in fed/store/run_changes.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/store/changed_keys.h"
#include "fed/store/manifest.h"
#include "fed/store/round_records.h"
#include "fed/store/run_changes.h"
#include "fed/store/run_request.h"

namespace evenkeel::fed {

/// The config of a run, and what the request that resumes it changes.
/// Example:  changes.take(request);  // reads and checks
///           changes.write();        // changes files
class ResumedChanges {
 public:
  /// \param config       the config of the run, without changes
  /// \param round        number of committed rounds that the run goes on from
  /// \param score_bytes  length in bytes of evaluations.jsonl up to that round
  ResumedChanges(const std::filesystem::path& folder, const RunConfig& config, int64_t round = 0,
                 int64_t score_bytes = 0)
      : folder_(folder), config_(config), round_(round), score_bytes_(score_bytes) {}

  /// Takes the changes of a request, and compares the input files and the program with the manifest. Changes are
  /// warned of when all are accepted. It changes no file. Settings with which the run began need not be repeated. A
  /// request may change:
  /// - train.rounds, if the settings contain it.
  /// - Other keys that differ (changes_of() in fed/store/run_request.h), if a resumed run may change them
  ///   (fed/store/changeable_keys.h).
  /// - The source of a method in Python (RunRequest::changed_method).
  /// - The list of node keys that may join (RunRequest::allowed).
  /// - The folder that the base model was moved to (RunRequest::base).
  /// - The content of test files from which no score was computed.
  /// \param as_run  see changes_of()
  /// \throws kConfig naming the keys that must not change, with both values; as check_extension() and
  /// has_changed_method(); kIo, kData naming a file that is missing or must not have changed
  void take(const RunRequest& request, const SettledChange& as_run = {});
  /// Returns what take() has changed.
  const RunChanges& taken() const { return taken_; }
  /// Returns the config with the changes.
  const RunConfig& config() const { return config_; }
  /// Writes the changes into manifest.json and config.toml. Sets aside scores and answers that they make invalid, and
  /// removes uploads of the next round if its clients would train differently now.
  /// REQUIRES that evaluations.jsonl ends with the round that the run goes on from.
  void write() const;

 private:
  void extend(int64_t rounds);
  void take_keys(const RunRequest& request, const BegunRequest& begun, const SettledChange& as_run);
  void change_keys(const std::vector<ChangedKey>& keys, const RunRequest& request, const BegunRequest& begun);
  void use_method(bool may_change);
  void admit(const std::optional<std::vector<std::string>>& allowed);
  void use_base(const std::string& base);
  void check_files();
  void warn(int64_t rounds_before) const;
  std::vector<EvaluationRecord> kept_scores() const;
  bool next_round_differs() const;
  void set_aside_scores() const;

  std::filesystem::path folder_;
  RunConfig config_;
  int64_t round_, score_bytes_;
  RunChanges taken_;
};

}  // namespace evenkeel::fed
