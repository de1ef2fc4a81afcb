/// \file  Which files are one and the same, whatever they are called: names, links and copies. Paths are compared
/// nowhere as texts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace evenkeel {

/// Files by identity. Not thread-safe.
class KnownFiles {
 public:
  /// Adds a file. \return false when it is there already: under the same name, another path to it, or a link.
  bool add(const std::string& file);
  /// The file among these with the same content, itself or a copy; nothing when there is none. Cost: a file is read
  /// only where another one has its length. \throws kIo when one cannot be read
  std::optional<std::string> with_content_of(const std::string& file);

 private:
  struct Known {
    std::string file, digest;  ///< the digest is empty until it is asked for
  };
  std::set<std::pair<uint64_t, uint64_t>> nodes_;  // device and inode
  std::multimap<uint64_t, Known> by_size_;
};

}  // namespace evenkeel
