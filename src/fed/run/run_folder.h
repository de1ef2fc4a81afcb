/// \file  Manages the folder of a run. Writes are atomic: readers always see the last committed round. JSON files and
/// lines are sealed (base/plain/sealed.h). One process writes at a time (base/system/folder_lock.h); any number of
/// processes may read.
///
///   config.toml           the settled config; equal to "config" in manifest.json
///   manifest.json         fed/store/manifest.h; a folder with this file holds a run
///   partition.json        fed/run/partition_file.h; missing if clients keep their rows to themselves
///   rows/                 rows that the Python package wrote for the run (python/evenkeel_moe/_row_files.py)
///   chat_template.jinja   copy of the file that data.chat_template named, if any
///   checkpoint/           fed/store/run_checkpoint.h
///   rounds.jsonl          one line per committed round (fed/store/round_records.h)
///   evaluations.jsonl     one line per score (fed/store/round_records.h)
///   items/round-N.jsonl   scores of single rows, one line per score after N rounds, if evaluate.items is true
///   superseded.jsonl      lines that were removed from evaluations.jsonl when the run was extended
///   missing_scores.jsonl  one line per score that a federation's node did not return (fed/store/round_records.h)
///   evaluating.jsonl      answers of an evaluation under way (scoring/answer_journal.h)
///   log.txt               log lines with times, of every process that worked on the run
///   best.json, best/      fed/run/best_round.h
///   tensorboard/          fed/run/event_log.h
///   federation/           flower/federation/serve.h
///   privacy/              noise key and privacy account (privacy/ledger.h); releases stay when a run is resumed
///   cluster.jsonl         the clients of each rank of a cluster, one line per round
///   adapter/              the global adapter in PEFT's layout; written again from the checkpoint when a run is resumed
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/log.h"
#include "base/plain/sealed.h"
#include "base/system/folder_lock.h"
#include "fed/config/client_rows.h"
#include "fed/round/server.h"
#include "fed/run/resumed_changes.h"
#include "fed/store/background.h"
#include "fed/store/round_records.h"
#include "fed/store/run_checkpoint.h"
#include "fed/store/run_files.h"
#include "fed/store/run_request.h"
#include "scoring/answer_journal.h"

namespace evenkeel::fed {

/// The open, locked folder of a run. A resumed run calls open(), changes().take(), check() and settle(), in this order.
/// Threads: one; commit() has a background thread of its own.
class RunFolder {
 public:
  /// Writes config, partition, the checkpoint's commit file and, last, the manifest.
  /// \param lock    the result of prepare_folder() (fed/run/new_run_folder.h)
  /// \param shards  null if clients keep their rows to themselves; partition.json is then not written
  /// \param asked   the config of `request` before it was settled
  static RunFolder create(const std::filesystem::path& folder, FolderLock lock, const Server& server,
                          const Shards* shards, const RunRequest& request, const ExperimentConfig& asked);

  /// Opens, locks and checks an existing run. It changes no file; settle() changes them later.
  /// \param from_round  continue from this round, which may not be the last one; data of later rounds may be damaged
  /// \throws kIo when the folder holds no run or is in use by another process; kCheckpoint, kNumeric naming what is
  /// damaged and the newest undamaged round
  static RunFolder open(const std::filesystem::path& folder, std::optional<int64_t> from_round = std::nullopt);
  /// Compares the stored state and partition with the server and the shards, and checks the privacy account.
  /// \throws kCheckpoint when they do not match, and as check_account()
  void check(const Server& server, const Shards* shards) const;
  /// Returns the changes of a resumed run. ResumedChanges::take() is called between open() and check(); settle() writes
  /// the changes that take() took.
  ResumedChanges& changes() { return changes_; }
  /// Returns the number of committed rounds when the folder was opened.
  int64_t opened_round() const { return opened_.commit.round; }
  /// Makes the files agree with the opened round and the changes, which go into config.toml and manifest.json. Removes
  /// temporary files of killed processes. Call it after all checks.
  void settle() const;

  const std::filesystem::path& path() const { return folder_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  /// Returns the config of the run, with changes() that were taken.
  const RunConfig& config() const { return changes_.config(); }
  /// Moves the opened round's snapshot out, or returns nullopt if no round is committed.
  std::optional<Snapshot> take_snapshot();

  /// Commits a round: writes the snapshot, the commit file, and the line of rounds.jsonl. A background thread removes
  /// old rounds and writes adapter/ if it is small (at most 64 MiB); a larger adapter/ is written before the call
  /// returns. An error of the background thread is thrown by the next commit() or finish().
  void commit(const Snapshot& snapshot, const RoundRecord& record, const Server& server) const;
  /// Ends the run after its last round: waits for the background thread and removes the last journal.
  void finish(int64_t last_round) const;
  /// Copies log lines to log.txt for as long as this object exists, beginning with the lines that `held` has collected.
  void keep_log(std::unique_ptr<log::File> held = std::make_unique<log::File>());
  /// Writes a line to log.txt only.
  void note(log::Level level, std::string_view line) const;

  /// Writes adapter/. Call it when a run is resumed, because the run may have been stopped between commit and adapter.
  /// \param part  name of the folder to write, inside the run folder
  void save_adapter(const methods::ServerState& state, const Server& server,
                    std::string_view part = run_file("adapter")) const;
  /// Appends a line to evaluations.jsonl.
  void add_evaluation(const EvaluationRecord& score) const;
  /// Removes the lines of items/round-N.jsonl for which `keep` is false. Call it before a round is scored: lines of
  /// scores that an earlier process did not record would be there twice.
  void keep_items(int64_t round, const std::function<bool(const ItemRecord&)>& keep) const;
  /// Appends a line to items/round-N.jsonl. Call it before add_evaluation(), so that a recorded score has its items.
  void add_items(const ItemRecord& items) const;
  /// Appends a line to missing_scores.jsonl.
  void add_missing(const MissingScore& score) const;
  /// Returns the journal of answers of the evaluation under way, with the answers of earlier processes.
  const std::shared_ptr<scoring::AnswerJournal>& answers() const;
  /// Returns all lines of evaluations.jsonl. \throws kCheckpoint when one is damaged
  std::vector<SealedLine> evaluations() const;

 private:
  RunFolder(const std::filesystem::path& folder, FolderLock lock, const RunConfig& config)
      : folder_(folder),
        lock_(std::move(lock)),
        checkpoint_(folder / run_file("checkpoint")),
        changes_(folder, config),
        background_(std::make_unique<Background>()) {}
  void read_records(std::optional<int64_t> from_round);

  std::filesystem::path folder_;
  FolderLock lock_;
  Checkpoint checkpoint_;
  ResumedChanges changes_;
  CommittedRound opened_;
  int64_t round_bytes_ = 0, evaluation_bytes_ = 0;  // end of the lines that belong to the opened round
  mutable std::shared_ptr<scoring::AnswerJournal> answers_;
  std::unique_ptr<log::File> log_;
  bool record_missing_ = false;             // the opened round's line of rounds.jsonl is missing
  bool goes_back_ = false;                  // the opened round need not be the last one
  std::unique_ptr<Background> background_;  // declared last, so that it ends before the lock is released
};

/// Returns the existing files that kRunFiles names (fed/store/run_files.h), the files in folders that it names, and the
/// manifest's input files. Empty if `folder` does not exist.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& folder);

}  // namespace evenkeel::fed
