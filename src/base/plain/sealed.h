/// \file  Reads and writes sealed JSON: objects whose last member is a checksum of all bytes before it. A sealed object
/// can also record the length and SHA-256 of binary files in the same folder. Any changed byte is detected, and the
/// JSON stays readable for every tool. Example:
///   append_sealed(file, {{"round", 1}});
///   const auto read = read_sealed_lines(file);  // a variable, because the lines must outlive the loop
///   for (const auto& line : read.whole().lines) ...
///
///   {"round":1,"loss":2.25,"checksum":"<first 16 hex digits of the SHA-256 of everything before this key>"}
///
/// The checksum detects damage, not forgery: anybody can recompute it after a change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel {

/// Returns the text of `object` with its checksum: one line, or several with `indent` spaces per level if `indent` is 0
/// or more. REQUIRES an object with at least one member. \throws kNumeric naming a number that is not finite.
std::string sealed(const OrderedJson& object, int indent = -1);
/// Returns true if `text` ends as sealed() ends an object: with a checksum of 16 hexadecimal digits, which need not fit
/// the bytes before it.
bool ends_as_sealed(std::string_view text);
/// Returns the object in `text` without its checksum. \throws kCheckpoint naming `place`, the source of the text, when
/// the checksum does not match.
Json unsealed(std::string_view text, const std::string& place);

/// Writes one sealed object and a line break to a file, atomically. \throws kIo.
void write_sealed(const std::filesystem::path& file, const OrderedJson& object, int indent = -1);
/// Reads a file of write_sealed(). \throws kCheckpoint when it is damaged, kIo when it cannot be read.
Json read_sealed(const std::filesystem::path& file);

/// One object of a file of sealed lines.
struct SealedLine {
  Json json;
  std::string place;  ///< "runs/a/rounds.jsonl, line 3", for messages
  /// Returns a view of the object, with kCheckpoint as the kind of errors. REQUIRES that this object outlives it.
  JsonView view() const { return {json, place, kCheckpoint}; }
  int64_t end = 0;  ///< offset of the byte after the line break, from the beginning of the file
};

/// The content of a file of sealed lines.
struct SealedLines {
  std::vector<SealedLine> lines;  ///< all lines before the first damaged one
  std::optional<Error> damage;    ///< error of the first damaged line; empty when there is none

  /// Returns *this. \throws the error in `damage` if there is one.
  const SealedLines& whole() const;
  /// Returns the length in bytes of the undamaged lines.
  int64_t bytes() const { return lines.empty() ? 0 : lines.back().end; }
};

/// Reads the lines of a file that append_sealed() wrote; returns none when the file does not exist. An incomplete last
/// line is ignored, because another process may still write it or was killed while writing. \throws kIo.
SealedLines read_sealed_lines(const std::filesystem::path& file);
/// Appends one sealed line and flushes the file to disk, as append_line(): an incomplete last line is removed first.
/// \throws kIo.
void append_sealed(const std::filesystem::path& file, const OrderedJson& object);

/// Identifies a file and its last change by the metadata of the file system (stat).
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0, modified_ns = 0,
          changed_ns = 0;  ///< length, mtime and ctime; times in nanoseconds since the epoch

  /// Reads the metadata of a file. \throws kIo when there is no such file.
  static FileIdentity of(const std::filesystem::path& file);
  bool operator==(const FileIdentity&) const = default;
};

}  // namespace evenkeel
