/// \file  What a client keeps for itself from one round to the next, on its own disk: a process that died goes on with
/// it. Memory counts when the server has taken the reply it belongs to; a round that is asked for again begins with
/// what stood before it, and undoes what came after it.
///
///   <run>-<rounds>.safetensors   after so many rounds; the last two are kept
///   <run>-<rounds>.json          its length and SHA-256, sealed (base/plain/sealed.h). It is
///                                written last; without it the memory does not count
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/format/safetensors.h"

namespace evenkeel {

class NodeMemory {
 public:
  /// \param folder  made when absent; empty: nothing outlives the process
  NodeMemory(std::filesystem::path folder, std::string run);

  /// After the last of the first `round` rounds that counts. \throws kCheckpoint when the file is damaged
  TensorMap before(int64_t round) const;
  /// What it keeps after the round that follows `round`, once delivered() says that it counts.
  void propose(int64_t round, TensorMap memory);
  void delivered();

 private:
  std::filesystem::path file(int64_t rounds) const;
  void load();
  void forget(std::map<int64_t, TensorMap>::iterator known);

  std::filesystem::path folder_;
  std::string run_;
  std::map<int64_t, TensorMap> known_;  // by rounds done
  std::optional<std::pair<int64_t, TensorMap>> proposed_;
};

}  // namespace evenkeel
