/// \file  Stores a client's private state between rounds on its own disk, so that a restarted process continues with
/// it. State becomes valid when the server has received the reply of the same round. It is stored before the reply is
/// sent, because a node that is killed meanwhile does not know whether the reply arrived. If the server repeats a
/// round, the client continues from the state before this round, and the later state is deleted.
///
///   <run>-<rounds>.safetensors   the state after so many rounds; the last two are kept
///   <run>-<rounds>.json          its length and SHA-256, sealed (base/plain/sealed.h). It is written last; without it
///                                the state is ignored. It is removed first, so a killed process leaves whole states
///   <run>-<rounds>-sent.*        the same of a state whose reply may have arrived
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/format/safetensors.h"

namespace evenkeel::flower {

/// The private state of a client in one run. Threads: one.
class NodeMemory {
 public:
  /// Loads the states of `run`.
  /// \param folder  made if absent; empty: the state is kept in memory only
  /// \throws kCheckpoint when a stored state is damaged
  NodeMemory(std::filesystem::path folder, std::string run);

  /// Returns a copy of the newest state after at most `round` rounds; empty if there is none.
  TensorMap before(int64_t round) const;
  /// Stores the state after `round` + 1 rounds, which may be empty, in place of one that was proposed before. The
  /// functions below make it valid or delete it.
  void propose(int64_t round, TensorMap memory);
  /// Makes the proposed state valid, unless it is empty after a state that is empty, too. Deletes states of this round
  /// and of later ones that were stored before the server resumed.
  void delivered();
  /// Deletes the proposed state: the server has refused the reply.
  void refused() { drop_proposed(); }
  /// Makes the state that was proposed in `round` valid or deletes it, as the server says later of the round's reply.
  void decided(int64_t round, bool taken);
  /// Reports that the server asks for `round`. A state that was proposed in an earlier round becomes valid: this node
  /// was killed before it knew whether its reply arrived, and a server without it would have asked again or said so.
  void asked(int64_t round);

 private:
  std::filesystem::path file(int64_t rounds, std::string_view suffix) const;
  void load();
  void load(int64_t rounds, const std::filesystem::path& seal, bool sent);
  void check(const std::filesystem::path& seal) const;
  void store(int64_t rounds, TensorMap memory);
  void forget(std::map<int64_t, TensorMap>::iterator known);
  void drop_proposed();
  bool is_empty() const;  // of the newest valid state

  std::filesystem::path folder_;
  std::string run_;
  std::map<int64_t, TensorMap> known_;                     // by number of rounds done
  std::optional<std::pair<int64_t, TensorMap>> proposed_;  // likewise
};

}  // namespace evenkeel::flower
