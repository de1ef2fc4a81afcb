/// \file  Remembers which of its test rows a node has scored, over all runs. Scores of two sets that differ in a few
/// rows tell about these rows, and a server could offer two such runs. The file stays in the node's folder.
///
///   scored-rows.json   the sets, sealed (base/plain/sealed.h)
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"

namespace evenkeel::flower {

/// A set of test rows that has been scored.
struct ScoredSet {
  std::string files;              ///< SHA-256 over the files that the rows are from
  std::vector<std::string> rows;  ///< a digest of each row, ascending

  void visit(auto& field) {  // base/format/record.h
    field("files", files);
    field("rows", rows);
  }
};

/// Returns the set of `rows`.
ScoredSet set_of(std::span<const data::Row> rows, const std::string& files);

/// The sets that a node has scored. Threads: one.
class ScoredRows {
 public:
  /// The largest number of different sets of rows of the same files.
  static constexpr int64_t kMostSets = 8;

  /// \param folder  empty: nothing is stored \throws kCheckpoint when the file is damaged
  explicit ScoredRows(const std::filesystem::path& folder);

  /// Returns why `set` must not be scored: it differs from an earlier set of the same files in fewer than `least` rows,
  /// or it would be one set too many of these files. Empty if it may.
  std::string refusal(const ScoredSet& set, int64_t least) const;
  /// Adds a set that is about to be scored.
  void add(const ScoredSet& set);

 private:
  std::filesystem::path file_;
  std::vector<ScoredSet> sets_;
};

}  // namespace evenkeel::flower
