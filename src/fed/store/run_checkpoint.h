/// \file  The server's state on disk, committed round by round. A round is committed by renaming one small file; until
/// then the round before it stands, untouched. Everything here is sealed (base/plain/sealed.h), and read back before it
/// is believed.
///
/// Layout of `checkpoint/`:
///   commit.json        the marker: a copy of the commit.json of the last committed round; round 0 before the first
///   round-<t>/         after t rounds: state.safetensors (server), memory.safetensors (clients) and commit.json, which
///                      names both with their SHA-256 and holds the round's line of rounds.jsonl
///   round-<t-1>/       the round before, in case the last one is damaged
///   uploads-<t+1>/     the journal (fed/store/journal.h) of the next round
///   uploads-<t>/       that of the last one, until its files are replaced by the next one's
///
/// Readers need no lock: two rounds are kept, so what a marker names stays until the round after the next is committed,
/// and Checkpoint::read() looks again when it is gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/format/record.h"
#include "base/plain/sealed.h"
#include "fed/exchange/message.h"
#include "fed/store/state_file.h"

namespace evenkeel {

/// Everything a run needs to go on: to the bit.
struct Snapshot {
  ServerState state;
  ClientMemories memories{};
  OtherTraffic opening{};  ///< what was sent for the state before the first round; not saved, made with it
  double clock = 0;        ///< simulated seconds so far; the record of the last round says it
};

struct Commit {
  int64_t round = 0;            ///< rounds done
  std::string record;           ///< the round's line of rounds.jsonl, sealed; empty before the first round
  std::vector<FileSeal> files;  ///< of the round's folder; none before the first round
  bool operator==(const Commit& other) const { return round == other.round && record == other.record; }
  void visit(auto& field) {  // base/format/record.h
    field("round", round);
    field("record", record);
    field("files", files);
  }
};

/// A committed round as it was read back.
struct CommittedRound {
  Commit commit;
  Snapshot snapshot;  ///< tensors of the state are views of the file; empty before the first round
  std::filesystem::path folder;
};

/// Whether a whole round can be gone on from, whatever else that takes.
using RoundFilter = std::function<bool(int64_t round)>;

class Checkpoint {
 public:
  explicit Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Makes the folder and the marker of a run without a round.
  void begin() const;

  /// The marker. \throws kCheckpoint when it is missing or damaged: a run has one from its beginning.
  Commit last() const;
  /// The last committed round. \throws kCheckpoint, kNumeric naming the file that is damaged, and before it the round
  /// that is whole.
  CommittedRound read() const;
  /// A committed round that is still there, 0: the beginning. \throws kCheckpoint naming those that are whole.
  CommittedRound read(int64_t round) const;
  /// `damage`, with the last round in front of it that is whole and `fits`, and how to go on from there.
  Error with_recovery_hint(const Error& damage, const RoundFilter& fits = {}) const;

  /// Writes the snapshot and its commit.json, then the marker.
  void commit(const Snapshot& snapshot, const std::string& record) const;
  /// Removes what nobody needs once `last_round` is committed: rounds but it and the one before, journals of rounds
  /// before `first_journal` or beyond the next. May go on while the next one is written.
  void clear(int64_t last_round, int64_t first_journal) const;
  /// Makes `commit` the last one, and removes what a killed process left: temporary files, and all that clear() does
  /// but the next journal.
  void settle(const Commit& commit) const;

  /// Folder of the journal of the round that makes `round`.
  std::filesystem::path uploads(int64_t round) const;

 private:
  std::filesystem::path round_folder(int64_t round) const;
  CommittedRound load(Commit commit) const;
  CommittedRound load_kept(int64_t round) const;
  std::vector<int64_t> whole_rounds() const;

  std::filesystem::path folder_;
};

/// Removes what killed writes of `names` left in `folder`.
void remove_parts(const std::filesystem::path& folder, const std::vector<std::string>& names);

}  // namespace evenkeel
