/// \file  Files of ours that say whether they are whole: JSON objects whose last member is a checksum of all bytes
/// before it, and which name the length and SHA-256 of the binary files that lie beside them. Any changed byte is
/// found, and the JSON stays readable for every tool. Example:
///   append_sealed(file, {{"round", 1}});
///   const auto read = read_sealed_lines(file);  // a name of its own: a loop over a temporary's lines outlives them
///   for (const auto& line : read.whole().lines) ...
///
///   {"round":1,"loss":2.25,"checksum":"<first 16 hex digits of the SHA-256 of everything before this key>"}
///
/// Against damage, not against forgery: whoever edits a file can seal it anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel {

/// The text of `object` with its checksum, on one line or, with an indent, on several. REQUIRES an object with a
/// member.
std::string sealed(const OrderedJson& object, int indent = -1);
/// The object that sealed() wrote, without its checksum. \throws kCheckpoint naming `place` when the bytes are not
/// those that were sealed.
Json unsealed(std::string_view text, const std::string& place);

/// A file that holds one sealed object and a line break.
void write_sealed(const std::filesystem::path& file, const OrderedJson& object, int indent = -1);
Json read_sealed(const std::filesystem::path& file);

struct SealedLine {
  Json json;
  std::string place;  ///< "rounds.jsonl, line 3", for messages
  JsonView view() const { return {json, place, kCheckpoint}; }
  int64_t end = 0;  ///< bytes of the file up to its end, with the line break
};

struct SealedLines {
  std::vector<SealedLine> lines;  ///< up to the first damaged one
  std::optional<Error> damage;    ///< what is wrong with the line after these

  /// \throws what is wrong.
  const SealedLines& whole() const;
  /// Bytes that the lines take.
  int64_t bytes() const { return lines.empty() ? 0 : lines.back().end; }
};

/// The lines of a file that append_sealed() made; none when there is no such file. The beginning of a line at the end,
/// which is being written or was when its process died, is left out.
SealedLines read_sealed_lines(const std::filesystem::path& file);
/// Appends a line and flushes it to disk.
void append_sealed(const std::filesystem::path& file, const OrderedJson& object);

/// Which file a path names and when it was last changed, as the file system knows it.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0, modified_ns = 0, changed_ns = 0;

  /// \throws kIo when there is no such file.
  static FileIdentity of(const std::filesystem::path& file);
  bool operator==(const FileIdentity&) const = default;
};

/// Length and SHA-256 of a file, as a sealed object beside it tells them.
struct FileSeal {
  std::string name;  ///< in the folder of the object
  int64_t bytes = 0;
  std::string sha256;
  /// Set by of(), kept by nobody on disk: a file that this process hashed and nobody touched since is not read again.
  std::optional<FileIdentity> hashed{};

  static FileSeal of(const std::filesystem::path& file);
  /// The same of a file that the caller has just written, from the bytes it holds.
  static FileSeal of(const std::filesystem::path& file, std::string_view bytes);
  /// \throws kCheckpoint when the file in `folder` is not the one that was sealed, kIo when it is gone.
  void check(const std::filesystem::path& folder) const;
  /// The same bytes under the same name, whoever hashed them.
  bool operator==(const FileSeal& other) const {
    return name == other.name && bytes == other.bytes && sha256 == other.sha256;
  }
};
/// {"<name>": {"bytes": ..., "sha256": ...}}, as a field of a record (base/format/record.h).
OrderedJson to_json(const std::vector<FileSeal>& seals);
void from_json(const JsonView& json, std::vector<FileSeal>& seals);
/// The seal of `name`; null when there is none.
const FileSeal* find_seal(const std::vector<FileSeal>& seals, std::string_view name);

}  // namespace evenkeel
