/// \file  Keeps a node's attempt at a masked round and its list of summed rounds on disk, in a folder of mode 0700. An
/// attempt holds secrets: its file has mode 0600, and is overwritten and removed as soon as its round is committed. The
/// list holds no secrets, and is never shortened.
///
/// Files: attempt.json (sealed, base/plain/sealed.h) and summed.jsonl, one sealed line per round.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "secure/node_round.h"

namespace evenkeel::secure {

/// The store of one node. Threads: one. \throws kIo from all functions; kCheckpoint naming a damaged file
class NodeStore : public SummedRounds {
 public:
  /// Creates the folder if it is missing.
  explicit NodeStore(std::filesystem::path folder);

  /// Replaces the stored attempt. It is on disk when the call returns.
  void save(const NodeAttempt& attempt) const;
  /// Returns the stored attempt; nothing if there is none.
  std::optional<NodeAttempt> load() const;
  /// Overwrites the stored attempt with zeros and removes it. A file system that writes to other places, or a flash
  /// disk, may keep the old blocks.
  void wipe() const;

  std::optional<SummedSet> find(const std::string& run, int64_t round) const override;
  void store(const std::string& run, int64_t round, const SummedSet& set) override;

 private:
  std::filesystem::path attempt_file() const;
  std::filesystem::path list_file() const;

  std::filesystem::path folder_;
};

}  // namespace evenkeel::secure
