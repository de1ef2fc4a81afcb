/// \file  The folder of a run, never half-written: readers see the last committed round.
///
///   config.toml        resolved; what a resumed run uses         manifest.json   fed/manifest.h; its presence makes
///   the run partition.json     row indices of every client               checkpoint/     fed/checkpoint.h rounds.jsonl
///   a line per committed round                adapter/        the global adapter in PEFT's layout evaluations.jsonl  a
///   line per round, task and budget
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "fed/checkpoint.h"
#include "fed/experiment.h"

namespace evenkeel {

class RunFolder {
 public:
  /// A folder to hold a new run: made, or empty already, or left by a run that was stopped before it began.
  /// \throws kIo when it holds anything else, or is not writable.
  static void prepare(const std::filesystem::path& folder);
  /// Whether a run lives there.
  static bool holds_run(const std::filesystem::path& folder);
  /// Whether there is no such folder, it is empty, or create() did not get to its end there.
  static bool nothing_began(const std::filesystem::path& folder);

  /// Writes config, partition and, last, the manifest. REQUIRES prepare().
  static RunFolder create(const std::filesystem::path& folder, const Experiment& experiment);
  /// A run that was begun earlier; record files are brought back to the last commit. \throws kIo when there is none.
  static RunFolder open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }

  /// Commits a round: snapshot, marker, then the line of rounds.jsonl and adapter/.
  void commit(const Snapshot& snapshot, const OrderedJson& record, const Experiment& experiment) const;
  /// Writes adapter/. A run that goes on does it first: it may have been stopped between a commit and its adapter.
  void save_adapter(const ServerState& state, const Experiment& experiment) const;
  void add_evaluation(const OrderedJson& line) const;
  /// All lines of evaluations.jsonl.
  std::vector<Json> evaluations() const;

 private:
  explicit RunFolder(const std::filesystem::path& folder) : folder_(folder), checkpoint_(folder / "checkpoint") {}
  void repair() const;

  std::filesystem::path folder_;
  Checkpoint checkpoint_;
};

/// The config a run folder was made with. \throws kIo when no run lives there.
ExperimentConfig run_config(const std::filesystem::path& folder);

}  // namespace evenkeel
