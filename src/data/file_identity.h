/// \file  Finds files that are given twice: under several names, as links or as copies. Files are compared by device
/// and inode, or by content, never by path.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace evenkeel::data {

/// A set of files. Not thread-safe.
class KnownFiles {
 public:
  /// Adds a file. \return false if the same file (device and inode) is in the set. \throws kIo if the file cannot be
  /// read.
  bool add(const std::string& file);
  /// Returns a file of the set with the same content as `file` (the file itself or a copy), or nothing. Cost: files are
  /// hashed only if their sizes are equal. \throws kIo if a file cannot be read.
  std::optional<std::string> with_content_of(const std::string& file);

 private:
  struct Known {
    std::string file, digest;  ///< digest: computed at first use, empty until then
  };
  std::set<std::pair<uint64_t, uint64_t>> nodes_;  // device and inode
  std::multimap<uint64_t, Known> by_size_;
};

}  // namespace evenkeel::data
