/// \file  Stores the server's state on disk, round by round. Renaming one small file commits a round; until then the
/// previous round stays valid and unchanged. All files are sealed (base/plain/sealed.h), and checksums are verified
/// when they are read.
///
/// Layout of `checkpoint/`:
///   commit.json        the marker: a copy of the commit.json of the last committed round; round 0 before the first
///   round-<t>/         the state after t rounds: state.safetensors (server), memory.safetensors (clients), and
///                      commit.json, which holds the seals of both files and the round's line of rounds.jsonl
///   round-<t-1>/       the previous round, in case round t is damaged
///   uploads-<t+1>/     the journal (fed/store/journal.h) of the next round
///   uploads-<t>/       the journal of the last round, until the next journal has replaced its files
///
/// Readers need no lock. Two rounds are kept, so the round that a marker names exists until two more rounds are
/// committed. If that round no longer exists, Checkpoint::read() reads the marker again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/format/file_seal.h"
#include "base/format/record.h"
#include "base/plain/sealed.h"
#include "fed/exchange/message.h"
#include "fed/store/state_file.h"

namespace evenkeel::fed {

/// Everything that a run needs to continue with bit-identical results.
struct Snapshot {
  methods::ServerState state;  ///< the server's state after the round
  ClientMemories memories{};
  OtherTraffic opening{};  ///< traffic that made and sent the state before the first round; not saved
  double clock = 0;        ///< simulated seconds so far; not saved, read from the last round's record
};

/// The contents of a commit.json.
struct Commit {
  int64_t round = 0;            ///< rounds done
  std::string record;           ///< the round's line of rounds.jsonl, sealed; empty before the first round
  std::vector<FileSeal> files;  ///< seals of the files in the round's folder; empty before the first round
  bool operator==(const Commit& other) const { return round == other.round && record == other.record; }
  void visit(auto& field) {  // base/format/record.h
    field("round", round);
    field("record", record);
    field("files", files);
  }
};

/// A committed round, read from disk.
struct CommittedRound {
  Commit commit;
  Snapshot snapshot;  ///< state tensors are views of the mapped file; empty before the first round
  std::filesystem::path folder;
};

/// Returns true if the caller can continue from `round`, which is undamaged.
using RoundFilter = std::function<bool(int64_t round)>;

/// The `checkpoint/` folder of a run.
class Checkpoint {
 public:
  explicit Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Creates the folder and the marker of a run without rounds.
  void begin() const;

  /// Reads the marker. \throws kCheckpoint when it is missing or damaged, or a file is in the folder's place
  Commit last() const;
  /// Reads the last committed round.
  /// \throws kCheckpoint, kIo, kNumeric naming the damaged file, and the newest undamaged round
  CommittedRound read() const;
  /// Reads a committed round that is still stored; 0 is the beginning.
  /// \throws kCheckpoint naming the undamaged rounds when the round is not stored; as load_kept() when it is damaged
  CommittedRound read(int64_t round) const;
  /// Reads a stored round, 1 or later. \throws kCheckpoint, kIo, kNumeric when it is damaged or missing
  CommittedRound load_kept(int64_t round) const;
  /// Returns `damage` with two additions to its text: the newest undamaged round for which `fits` returns true (0 if
  /// there is none), and the command that continues from it.
  Error with_recovery_hint(const Error& damage, const RoundFilter& fits = {}) const;

  /// Writes the snapshot and its commit.json, then renames the marker into place.
  /// \param record  the round's sealed line of rounds.jsonl
  void commit(const Snapshot& snapshot, const std::string& record) const;
  /// Removes what is not needed once `round` is committed: rounds below `round` - 1, and journals of rounds below
  /// `round`. May run while later rounds and journals are written.
  void remove_older(int64_t round) const;
  /// Removes all rounds but `last_round` and the one before, and all journals but those from `first_journal` to the one
  /// of the next round.
  void clear(int64_t last_round, int64_t first_journal) const;
  /// Removes all rounds whose numbers are not in `rounds`, and temporary files of killed processes.
  void keep_only(const std::vector<int64_t>& rounds) const;
  /// Makes `commit` the last committed round. Removes temporary files of killed processes and everything that clear()
  /// removes, but keeps the next journal.
  void settle(const Commit& commit) const;

  /// Returns the folder of the journal of round `round`, 1 = the first.
  std::filesystem::path uploads(int64_t round) const;

 private:
  std::filesystem::path round_folder(int64_t round) const;
  CommittedRound load(Commit commit) const;
  std::vector<int64_t> whole_rounds() const;

  std::filesystem::path folder_;
};

/// Removes temporary files in `folder` that interrupted writes of the files `names` left.
void remove_parts(const std::filesystem::path& folder, const std::vector<std::string>& names);

}  // namespace evenkeel::fed
