/// \file  The server's state on disk, committed round by round. A round is committed by renaming one small file; until
/// then the round before it stands, untouched.
///
/// Layout of `checkpoint/`:
///   commit.json        the last committed round, its record, and how long rounds.jsonl was before it
///   round-<t>/         state.safetensors (server) and memory.safetensors (clients) after t rounds
///   uploads-<t>/       the journal (fed/journal.h) of the round that makes t, removed when it is committed
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "methods/method.h"

namespace evenkeel {

/// Client id -> what that client keeps across rounds.
using ClientMemories = std::map<int64_t, TensorMap>;

/// Everything a run needs to go on: to the bit.
struct Snapshot {
  ServerState state;
  ClientMemories memories;
  int64_t start_bytes_up = 0;  ///< what clients sent for the state before the first round; not saved, made with it
};

struct Commit {
  int64_t round = 0;           ///< rounds done
  std::string record;          ///< the round's line of rounds.jsonl
  int64_t records_before = 0;  ///< bytes of rounds.jsonl before that line
};

class Checkpoint {
 public:
  explicit Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The last committed round; empty when there is none yet. \throws kCheckpoint when the marker is damaged.
  std::optional<Commit> last() const;
  /// The snapshot of a committed round; tensors are views of the files.
  Snapshot load(int64_t round) const;
  /// Writes the snapshot, then the marker. Older rounds and finished journals are removed after that.
  void commit(const Snapshot& snapshot, const Commit& commit) const;
  /// Removes what a killed process left: older and uncommitted rounds, and journals but that of the next round.
  void repair() const;
  /// Folder of the journal of the round that makes `round`.
  std::filesystem::path uploads(int64_t round) const;

 private:
  std::filesystem::path round_folder(int64_t round) const;
  void remove_folders_but(std::span<const std::filesystem::path> kept) const;

  std::filesystem::path folder_;
};

}  // namespace evenkeel
