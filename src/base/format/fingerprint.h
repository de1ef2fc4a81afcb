/// \file  Computes and caches content hashes of files. A large file is hashed in one parallel pass. The result is
/// stored in the user's cache folder, so that a resumed run does not read a checkpoint of 14 GB again
/// (docs/decisions/0051-start.md). The cache detects changed and exchanged files. It does not protect against a person
/// who can write to the cache folder.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/sealed.h"

namespace evenkeel {

/// A content hash and the way it was computed.
struct Fingerprint {
  std::string_view kind;  ///< kWholeDigest for files of at most kTreePiece bytes, else kTreeDigest
  std::string digest;     ///< 64 hex digits
  bool operator==(const Fingerprint&) const = default;
};
/// Names of the two kinds: the SHA-256 of the file, and tree_digest().
inline constexpr std::string_view kWholeDigest = "sha256", kTreeDigest = "sha256_tree";
inline constexpr int64_t kTreePiece = int64_t{16} << 20;  ///< length of a piece of tree_digest(), bytes

/// Returns the fingerprint of a file. The first call for a file above kTreePiece bytes reads it once on all threads;
/// later calls use the cached value while the file is unchanged. Smaller files are always read.
/// \throws kIo when the file cannot be read, is not a regular file, or changes while it is read.
Fingerprint fingerprint_of(const std::filesystem::path& file);

/// Computes the tree digest of a file, always by reading it. Each piece of kTreePiece bytes has sixteen SHA-256
/// digests: its 4-byte words are distributed over sixteen texts, word w to text w mod 16
/// (base/format/sha256_streams.h). The last piece is padded with zeros to a multiple of 1 KiB. The result is the
/// SHA-256 of all digests in order, 32 bytes each, followed by the length of the file as 8 bytes, little-endian.
/// \throws kIo.
std::string tree_digest(const std::filesystem::path& file);

/// Returns the fingerprint of a file, always by reading it. \throws kIo as fingerprint_of()
Fingerprint read_fingerprint(const std::filesystem::path& file);
/// Returns the fingerprint of a file with this content, computed on all threads.
Fingerprint fingerprint_of_bytes(std::string_view bytes);

/// The digests of one piece of tree_digest(), 32 bytes each.
using PieceDigests = std::array<char, 32 * 16>;
/// Computes the digests of a piece: kTreePiece bytes, or the rest of a file. Uses one thread. Threads: any.
PieceDigests piece_digests(std::string_view piece);
/// Returns the tree digest of a file of `bytes` bytes from the digests of its pieces, in their order.
std::string tree_of(std::string digests, int64_t bytes);

/// Returns true when the last change of a file is at least two seconds before `now`. Timestamps of some file systems
/// have a resolution of two seconds, so a further change within that time may not be visible. Results for files that
/// changed more recently are not cached.
/// \param now  nanoseconds since the epoch
bool is_settled(const FileIdentity& file, int64_t now);

/// Remembers that all numbers in the files of a checkpoint are finite, so that loading need not check them again.
/// Results are stored in the cache folder. For one thread; several processes may use the folder.
class FiniteScan {
 public:
  /// Looks up `files` in the cache. \throws kIo when a file is missing.
  explicit FiniteScan(std::span<const std::filesystem::path> files);
  /// Returns true when all files were recorded as finite and have not changed since. It is false for no files, and when
  /// a file has at most kTreePiece bytes, because such files are not recorded.
  bool known() const { return known_; }
  /// Records that all numbers in these files are finite. Only files above kTreePiece bytes that have not changed since
  /// construction are recorded. A cache that cannot be written gives a warning. \throws kIo when such a file is
  /// missing.
  void remember_finite() const;

 private:
  std::vector<std::filesystem::path> files_;
  std::vector<FileIdentity> identities_;
  bool known_;
};

}  // namespace evenkeel
