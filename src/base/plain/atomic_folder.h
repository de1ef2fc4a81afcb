/// \file  Writes a folder that appears whole or not at all. Does not depend on LibTorch.
#pragma once

#include <optional>

#include "base/plain/file_lock.h"
#include "base/plain/files.h"

namespace evenkeel {

/// Writes an output folder that appears whole or not at all. The caller writes files into path(), a folder named
/// "<folder>.part", which the file "<folder>.part.lock" locks. commit() renames that folder. Without commit() the
/// destructor removes it. The constructor empties a "<folder>.part" that a killed process left, which its lock shows. A
/// `folder` that is a link stands for its target.
/// Example:  AtomicFolder out("models/new");  write_file_atomic(out.path() / "config.json", text);  out.commit();
class AtomicFolder {
 public:
  /// Creates and locks the ".part" folder. \throws kIo when `folder` exists with content, cannot be created, is a mount
  /// point, or another process is writing it, and when a ".part" folder has content but no lock.
  explicit AtomicFolder(const fs::path& folder);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  /// Returns the folder to write into.
  const fs::path& path() const { return part_; }
  /// Renames the ".part" folder to its final name, and flushes its entries and those of its parent. Files are flushed
  /// only if the caller wrote them by write_file_atomic() or AtomicFile::commit(). \throws kIo when the rename fails,
  /// or when the parent cannot be flushed; in the second case the folder is already in place.
  void commit();

 private:
  fs::path folder_, part_;
  std::optional<FileLock> lock_;  // "<folder>.part.lock"; empty after commit()
};

}  // namespace evenkeel
