/// \file  Manages the folder of a run. Writes are atomic: readers always see the last committed round. All files
/// written here are sealed (base/plain/sealed.h). One process writes at a time (base/system/folder_lock.h); any number
/// may read.
///
///   config.toml           the settled config; equal to "config" in manifest.json
///   manifest.json         fed/store/manifest.h; a folder with this file holds a run
///   partition.json        row indices of every client, if the run divides rows among clients
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
///   privacy/              key and account of privacy (privacy/ledger.h); recorded releases stay when a run is resumed
///   cluster.jsonl         the clients of each rank of a cluster, one line per round
///   adapter/              the global adapter in PEFT's layout; written again from the checkpoint when a run is resumed
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
#include "fed/store/run_files.h"
#include "fed/store/run_request.h"
#include "scoring/answer_journal.h"

namespace evenkeel::fed {

/// The open, locked folder of a run.
class RunFolder {
 public:
  /// Creates or takes over a folder for a new run and locks it. The folder may exist if it is empty but for rows/, or
  /// if a run was stopped there before it began.
  /// \param goes_on  true: keep federation/ of a server that waited here (awaits_clients())
  /// \throws kIo when the folder holds anything else, also such a federation without `goes_on`, is not writable, or is
  /// in use by another process; the message says what the user can do
  static FolderLock prepare(const std::filesystem::path& folder, bool goes_on = false);
  /// Removes what prepare() and create() made in a new folder, when no run begins there.
  static void abandon(const std::filesystem::path& folder, FolderLock lock);
  /// Returns true if the folder holds a run.
  static bool holds_run(const std::filesystem::path& folder);
  /// Returns true if the folder does not exist, is empty but for rows/, or holds only what an interrupted
  /// create() or a server that waited for its clients left.
  static bool nothing_began(const std::filesystem::path& folder);
  /// Returns true if no run began in the folder yet, but a server waited there for the clients of one: federation/ has
  /// the nodes that it knows and the clients that have joined.
  static bool awaits_clients(const std::filesystem::path& folder);

  /// Writes config, partition, the checkpoint's marker and, last, the manifest.
  /// \param lock    the result of prepare()
  /// \param shards  null if clients keep their rows to themselves; partition.json is then not written
  /// \param asked   the config of `request` before it was settled
  static RunFolder create(const std::filesystem::path& folder, FolderLock lock, const Server& server,
                          const Shards* shards, const RunRequest& request, const ExperimentConfig& asked);

  /// Opens, locks and checks an existing run. It changes no file; settle() changes them later.
  /// \param from_round  continue from this round, which may not be the last one; data of later rounds may be damaged
  /// \throws kIo when the folder holds no run or is in use by another process; kCheckpoint, kNumeric naming what is
  /// damaged and the newest undamaged round
  static RunFolder open(const std::filesystem::path& folder, std::optional<int64_t> from_round = std::nullopt);
  /// Compares the stored state and partition with the server and the shards.
  /// \throws kCheckpoint when they do not match
  void check(const Server& server, const Shards* shards) const;
  /// Names the folder that the base model was moved to; settle() records it. Empty: it was not moved. Call
  /// check_files() afterwards, which checks that it is the same model.
  void use_base(const std::string& base);
  /// Compares the input files with the manifest. Test files from which no score was computed may have changed; settle()
  /// records the change.
  /// \throws kIo, kData naming a file that is missing or must not have changed
  void check_files();
  /// Sets the number of rounds of the run; settle() records it.
  /// \throws kConfig when the run cannot have that number, see check_extension()
  void extend(int64_t rounds);
  /// Gives the run other values of keys that a resumed run may change (fed/store/changeable_keys.h); settle() records
  /// them.
  /// \param keys     as changes_of() finds them (fed/store/run_request.h); why_fixed_key() is empty for all of them
  /// \param request  the request that changes them
  void change_keys(const std::vector<ChangedKey>& keys, const RunRequest& request);
  /// Returns why the run must not change the value of a key; empty if it may.
  std::string why_fixed_key(const std::string& key) const;
  /// Compares the source of a method in Python with that of the run; settle() records a change.
  /// \throws kConfig as has_changed_method() (fed/store/manifest.h)
  void use_method(bool may_change);
  /// Compares the list of node keys that may join with that of the run; settle() records a change.
  /// \param allowed  RunRequest::allowed
  void admit(const std::optional<std::vector<std::string>>& allowed);
  /// Returns what the functions above have changed.
  const RunChanges& changes() const { return changes_; }
  /// Returns the number of committed rounds when the folder was opened.
  int64_t opened_round() const { return opened_.commit.round; }
  /// Makes the files agree with the opened round and the changes, which go into config.toml and manifest.json. Removes
  /// temporary files of killed processes. Call it after all checks.
  void settle() const;

  const std::filesystem::path& path() const { return folder_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  const RunConfig& config() const { return config_; }
  /// Moves the opened round's snapshot out, or returns nothing if no round is committed.
  std::optional<Snapshot> take_snapshot();

  /// Commits a round: writes the snapshot, the marker, and the line of rounds.jsonl. A background thread removes old
  /// rounds and writes adapter/ if it is small (at most 64 MiB); a larger adapter/ is written before the call returns.
  /// An error of the background thread is thrown by the next commit() or finish().
  void commit(const Snapshot& snapshot, const RoundRecord& record, const Server& server) const;
  /// Ends the run after its last round: waits for the background thread and removes the last journal.
  void finish(int64_t last_round) const;
  /// Copies log lines to log.txt for as long as this object exists, beginning with those that `held` has collected.
  void keep_log(std::unique_ptr<log::File> held = std::make_unique<log::File>());
  /// Writes a line to log.txt only.
  void note(log::Level level, std::string_view line) const;

  /// Writes adapter/. Call it when a run is resumed, because the run may have been stopped between commit and adapter.
  /// \param part  the folder to write it into, in the run folder
  void save_adapter(const methods::ServerState& state, const Server& server,
                    std::string_view part = run_file("adapter")) const;
  /// Appends a line to evaluations.jsonl.
  void add_evaluation(const EvaluationRecord& score) const;
  /// Removes the lines of items/round-N.jsonl for which `keep` is false. Call it before a round is scored: lines of
  /// scores that an earlier process did not record would stand twice.
  void keep_items(int64_t round, const std::function<bool(const ItemRecord&)>& keep) const;
  /// Appends a line to items/round-N.jsonl. Call it before add_evaluation(), so that a recorded score has its items.
  void add_items(const ItemRecord& items) const;
  /// Appends a line to missing_scores.jsonl.
  void add_missing(const MissingScore& score) const;
  /// Returns the journal of answers of the evaluation under way, with those of earlier processes.
  const std::shared_ptr<scoring::AnswerJournal>& answers() const;
  /// Returns all lines of evaluations.jsonl. \throws kCheckpoint when one is damaged
  std::vector<SealedLine> evaluations() const;

 private:
  RunFolder(const std::filesystem::path& folder, FolderLock lock, const RunConfig& config)
      : folder_(folder),
        lock_(std::move(lock)),
        checkpoint_(folder / run_file("checkpoint")),
        config_(config),
        background_(std::make_unique<Background>()) {}
  void read_records(std::optional<int64_t> from_round);
  std::vector<EvaluationRecord> kept_scores() const;
  void set_aside_scores() const;
  void write_changes() const;

  std::filesystem::path folder_;
  FolderLock lock_;
  Checkpoint checkpoint_;
  RunConfig config_;
  CommittedRound opened_;
  int64_t round_bytes_ = 0, evaluation_bytes_ = 0;  // end of the lines that belong to the opened round
  mutable std::shared_ptr<scoring::AnswerJournal> answers_;
  std::unique_ptr<log::File> log_;
  RunChanges changes_;                      // written by settle()
  bool record_missing_ = false;             // the opened round's line of rounds.jsonl is missing
  std::unique_ptr<Background> background_;  // declared last, so that it ends before the lock is released
};

/// Reads the config of a run.
/// \throws kIo when the folder holds no run; kCheckpoint when the manifest is damaged; kConfig naming the keys that
/// differ when config.toml was edited
RunConfig run_config(const std::filesystem::path& folder);

/// Reads the config of a run, to load its base model. Checks that the base and its tokenizer are those that the run was
/// made with (check_base() in fed/store/manifest.h).
/// \param base  folder that holds the base model now; empty: where it was when the run began
/// \throws as run_config(); kIo, kData naming the file of the base that is missing, has changed or was added
RunConfig config_with_base(const std::filesystem::path& folder, const std::string& base = {});

/// Returns the existing files that kRunFiles names (fed/store/run_files.h), those in folders that it names, and the
/// manifest's input files. Empty if there is no such folder.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& folder);

/// Reads the lines of rounds.jsonl up to the first that is damaged or out of order.
SealedLines read_rounds(const std::filesystem::path& folder);
/// Reads the lines of evaluations.jsonl up to the first that is damaged.
SealedLines read_evaluations(const std::filesystem::path& folder);
/// Reads items/round-N.jsonl. Returns nothing if the run does not record items. \throws kCheckpoint when a line is
/// damaged
std::vector<ItemRecord> read_items(const std::filesystem::path& folder, int64_t round);

}  // namespace evenkeel::fed
