/// \file  Writes a large file and hashes its bytes on all threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/format/file_seal.h"
#include "base/plain/files.h"

namespace evenkeel::fed {

/// A file that appears whole or not at all, with the hash of its bytes. The bytes are gathered into pieces of
/// kTreePiece bytes (base/format/fingerprint.h). When there is a piece for each thread, the threads hash and write the
/// pieces. File and hash do not depend on the number of threads. The object may be used by one thread at a time.
/// Example:  HashedFile out(path, bytes);  out.write(header);  out.write(body);  const FileSeal seal = out.place();
class HashedFile {
 public:
  /// \param expected  about how many bytes will be written; the file may have more or fewer. The buffer has kTreePiece
  /// bytes per thread, for at most kMostPieces threads, and no more pieces than `expected` bytes need
  /// \throws kIo as AtomicFile
  HashedFile(std::filesystem::path path, int64_t expected);
  /// Appends bytes. \throws kIo naming the file, e.g. when the disk is full
  void write(std::string_view bytes);
  /// Renames the file into place, as AtomicFile::place(). \return its seal. The object must not be used afterwards.
  FileSeal place();

 private:
  static constexpr int64_t kMostPieces = 8;

  void write_gathered();

  std::filesystem::path path_;
  AtomicFile out_;
  int64_t room_;                      // bytes that are gathered before they are written
  std::unique_ptr<char[]> gathered_;  // [room_]
  int64_t filled_ = 0, written_ = 0;  // bytes in gathered_, and in the file
  std::string digests_;               // of the pieces that were written
};

}  // namespace evenkeel::fed
