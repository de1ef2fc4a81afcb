/// \file  The seal of a file is its length and content hash. A sealed object in the same folder records it
/// (base/plain/sealed.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/fingerprint.h"
#include "base/plain/json.h"
#include "base/plain/sealed.h"

namespace evenkeel {

/// Length and content hash of a file.
struct FileSeal {
  std::string name;  ///< file name without its path
  int64_t bytes = 0;
  Fingerprint fingerprint{};
  /// The identity at the time of hashing, set by of() and not stored on disk. If it is unchanged, check() does not read
  /// the file again.
  std::optional<FileIdentity> hashed{};

  /// Hashes a file, a large one on all threads. \throws kIo.
  static FileSeal of(const std::filesystem::path& file);
  /// Hashes `bytes`, the content of a file that the caller has just written. Reads only the metadata of the file.
  /// \throws kIo when there is no such file.
  static FileSeal of(const std::filesystem::path& file, std::string_view bytes);
  /// Checks that the file in `folder` has the recorded content. \throws kCheckpoint when it differs, kIo when it is
  /// missing.
  void check(const std::filesystem::path& folder) const;
  /// Compares name, length and hash, not `hashed`.
  bool operator==(const FileSeal& other) const {
    return name == other.name && bytes == other.bytes && fingerprint == other.fingerprint;
  }
};
/// Converts seals to and from {"<name>": {"bytes": ..., "sha256" or "sha256_tree": ...}}, a field of a record
/// (base/format/record.h).
OrderedJson to_json(const std::vector<FileSeal>& seals);
void from_json(const JsonView& json, std::vector<FileSeal>& seals);
/// Returns the seal of the file `name`, or null. The pointer refers into `seals`.
const FileSeal* find_seal(const std::vector<FileSeal>& seals, std::string_view name);

}  // namespace evenkeel
