/// \file  Which content a file has, for files of any size: found out by one parallel pass over it and remembered, so
/// that a checkpoint of 14 GB is not read anew whenever a run goes on (docs/decisions/0051-start.md). Against change
/// and mix-up; what is remembered is worth what the person's own cache folder is worth.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/sealed.h"

namespace evenkeel {

struct Fingerprint {
  std::string_view kind;  ///< kWholeDigest of a file of at most kTreePiece bytes, kTreeDigest of a larger one
  std::string digest;     ///< 64 hex digits
};
inline constexpr std::string_view kWholeDigest = "sha256", kTreeDigest = "sha256_tree";
inline constexpr int64_t kTreePiece = int64_t{16} << 20;

/// The fingerprint of a file as it is now. Cost: of a large file the first time, one read of it on all threads.
/// \throws kIo when it cannot be read, or changes meanwhile.
Fingerprint fingerprint_of(const std::filesystem::path& file);

/// SHA-256 of the digests of the file's pieces and its length. A piece is kTreePiece bytes, the last one filled up with
/// zeros to whole blocks of 1 KiB; it has sixteen digests, of the texts that its 4-byte words w = 0, 1, … are dealt out
/// to by w mod 16 (base/format/sha256_streams.h). The root is over all digests in order, 32 bytes each, then the
/// length, 8 bytes little-endian. Always computed anew.
std::string tree_digest(const std::filesystem::path& file);

/// Whether a file was last changed long enough before `now` that any later change shows in its times: clocks of file
/// systems tick, some once in two seconds. What is younger is never remembered. \param now  nanoseconds of the epoch
bool is_settled(const FileIdentity& file, int64_t now);

/// The files of a checkpoint whose numbers are looked at one by one when it is read. Those that were found finite
/// before, and that nobody touched since, need not be looked at again.
class FiniteScan {
 public:
  explicit FiniteScan(std::span<const std::filesystem::path> files);
  /// All of them were found finite before.
  bool known() const { return known_; }
  /// All their numbers are finite: remembered of large files.
  void passed() const;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<FileIdentity> identities_;
  bool known_;
};

}  // namespace evenkeel
