/// \file  The folder of a run, never half-written: readers see the last committed round. All that is ours in it is
/// sealed (base/plain/sealed.h); one process at a time writes (base/system/folder_lock.h), any number may read.
///
///   config.toml        resolved; equal to what manifest.json holds under "config"
///   manifest.json      fed/store/manifest.h; its presence makes the run
///   partition.json     row indices of every client, where the run deals them out
///   checkpoint/        fed/store/run_checkpoint.h
///   rounds.jsonl       a line per committed round (fed/store/round_records.h)
///   evaluations.jsonl  a line per round, task and budget (fed/store/round_records.h)
///   superseded.jsonl   lines of evaluations.jsonl that are none any more since the run was extended
///   missing_scores.jsonl  a line whenever a federation's node gave no score (fed/store/round_records.h)
///   evaluating.jsonl   while an evaluation is under way: what is answered so far (scoring/answer_journal.h)
///   log.txt            what was logged, with times, by every process that worked on the run
///   adapter/           the global adapter in PEFT's layout, made anew from the checkpoint whenever a run goes on
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/plain/log.h"
#include "base/system/folder_lock.h"
#include "fed/config/client_rows.h"
#include "fed/round/server.h"
#include "fed/store/background.h"
#include "fed/store/round_records.h"
#include "fed/store/run_changes.h"
#include "fed/store/run_checkpoint.h"
#include "fed/store/run_request.h"
#include "scoring/answer_journal.h"

namespace evenkeel {

class RunFolder {
 public:
  /// A folder to hold a new run, locked: made, or empty already, or left by a run that was stopped before it began.
  /// \throws kIo when it holds anything else, is not writable, or another process works in it; the message names the
  /// next step.
  static FolderLock prepare(const std::filesystem::path& folder);
  /// Undoes prepare() of a folder that it made, when no run begins there after all.
  static void abandon(const std::filesystem::path& folder, FolderLock lock);
  /// Whether a run lives there.
  static bool holds_run(const std::filesystem::path& folder);
  /// Whether there is no such folder, it is empty, or create() did not get to its end there.
  static bool nothing_began(const std::filesystem::path& folder);

  /// Writes config, partition, the marker and, last, the manifest. \param lock  of prepare() \param shards  null where
  /// clients keep their rows to themselves: then there is no partition.json
  static RunFolder create(const std::filesystem::path& folder, FolderLock lock, const Server& server,
                          const Shards* shards, const RunRequest& request);

  /// A run that was begun earlier, locked, read and checked; nothing is changed before settle().
  /// \param from_round  go on from that round, which may not be the last one; what came after it need not be whole
  /// \throws kIo when there is none or another process works in it; kCheckpoint, kNumeric saying what is damaged and
  /// what is whole.
  static RunFolder open(const std::filesystem::path& folder, std::optional<int64_t> from_round = std::nullopt);
  /// \throws kCheckpoint when state or partition are not those of `server` and `shards`.
  void check(const Server& server, const Shards* shards) const;
  /// Compares the files that the run was made with, with what they are now. Test files that no score was computed from
  /// may have changed: settle() records it. \throws kIo, kData for any other, naming it
  void check_files();
  /// The run has `rounds` in all from now on. \throws kConfig when it cannot: see check_extension()
  void extend(int64_t rounds);
  /// After all checks: writes what has changed into config.toml and manifest.json, brings everything back to the
  /// round that was opened and removes what a killed process left.
  void settle() const;

  const std::filesystem::path& path() const { return folder_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  const ExperimentConfig& config() const { return config_; }
  /// The round that was opened; nothing before the first one.
  std::optional<Snapshot> take_snapshot();

  /// Commits a round: snapshot, marker, then the line of rounds.jsonl and adapter/. Older rounds are removed beside the
  /// next one, and an adapter/ of at most 64 MiB written there; the round's journal gives way to the next one's. What
  /// fails beside is an error of the next call of this or of finish().
  void commit(const Snapshot& snapshot, const RoundRecord& record, const Server& server) const;
  /// No round comes after the last: returns when nothing is under way any more, and its journal is gone.
  void finish(int64_t last_round) const;
  /// What is logged from now on, and what `held` has held, goes to log.txt as long as this object lives.
  void keep_log(std::unique_ptr<log::File> held = std::make_unique<log::File>());
  /// A line for log.txt alone.
  void note(log::Level level, std::string_view line) const;

  /// Writes adapter/. A run that goes on does it first: it may have been stopped between a commit and its adapter.
  void save_adapter(const ServerState& state, const Server& server) const;
  void add_evaluation(const EvaluationRecord& score) const;
  void add_missing(const MissingScore& score) const;
  /// What the evaluation that is under way has answered, and an earlier process of the same evaluation.
  const std::shared_ptr<AnswerJournal>& answers() const;
  /// All lines of evaluations.jsonl.
  std::vector<SealedLine> evaluations() const;

 private:
  RunFolder(const std::filesystem::path& folder, FolderLock lock)
      : folder_(folder),
        lock_(std::move(lock)),
        checkpoint_(folder / "checkpoint"),
        beside_(std::make_unique<Background>()) {}
  void read_records(std::optional<int64_t> from_round);
  std::vector<EvaluationRecord> kept_scores() const;
  void set_aside_scores() const;
  void write_changes() const;

  std::filesystem::path folder_;
  FolderLock lock_;
  Checkpoint checkpoint_;
  ExperimentConfig config_;
  CommittedRound opened_;
  int64_t round_bytes_ = 0, evaluation_bytes_ = 0;  // of the lines that the opened round leaves standing
  mutable std::shared_ptr<AnswerJournal> answers_;
  std::unique_ptr<log::File> log_;
  RunChanges changes_;                  // written by settle()
  bool record_missing_ = false;         // its own line of rounds.jsonl was not written any more
  std::unique_ptr<Background> beside_;  // last: it is done before the lock goes
};

/// The config a run was made with. \throws kIo when no run lives there, kCheckpoint, kConfig when config.toml is not
/// what the run wrote, naming the keys that differ.
ExperimentConfig run_config(const std::filesystem::path& folder);

/// Lines of rounds.jsonl up to the first that is damaged or not the next round.
SealedLines read_rounds(const std::filesystem::path& folder);
/// Lines of evaluations.jsonl.
SealedLines read_evaluations(const std::filesystem::path& folder);

}  // namespace evenkeel
