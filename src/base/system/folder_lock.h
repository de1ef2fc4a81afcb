/// \file  Locks a folder for one process, by a file in it. The lock ends with the process (base/plain/file_lock.h).
/// Example:  const FolderLock lock(run);  // throws when another process works there
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/plain/file_lock.h"

namespace evenkeel {

/// Holds the lock of a folder until it is destroyed. The lock is the file `.lock`, which names the process. Readers
/// need no lock.
class FolderLock {
 public:
  static constexpr const char* kFile = ".lock";

  /// Locks the folder. \throws InUse (base/plain/file_lock.h) naming the holder, which may be this process; kIo when
  /// the file cannot be created. REQUIRES that the folder exists.
  explicit FolderLock(const std::filesystem::path& folder) : lock_(folder / kFile, folder.string()) {}
  /// Returns the process that holds the lock of `folder`, e.g. "process 12 on host since ...", or nothing. Does not
  /// change the folder.
  static std::optional<std::string> holder(const std::filesystem::path& folder);
  /// Checks that nobody holds the lock. Does not change the folder. \throws kIo naming the holder
  /// \param advice  what to do, which ends the message if the holder is known to run
  static void check_free(const std::filesystem::path& folder, std::string_view advice);
  /// Returns true if `entry` of a folder is its lock, or was left by a process that was killed while it locked.
  static bool is_lock(const std::filesystem::path& entry) { return FileLock::belongs_to(entry, kFile); }

 private:
  FileLock lock_;
};

}  // namespace evenkeel
