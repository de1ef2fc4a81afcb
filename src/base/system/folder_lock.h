/// \file  Locks a folder for one process. The system releases the lock when the process ends, even after a crash.
/// Example:  const FolderLock lock(run);  // throws when another process works there
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace evenkeel {

/// Holds the lock of a folder until it is destroyed. The lock is an flock(2) on the file `.lock`, which contains
/// process, machine and time for error messages. A `.lock` file that no living process has locked has no effect.
/// Readers need no lock.
class FolderLock {
 public:
  static constexpr const char* kFile = ".lock";

  /// Locks the folder. \throws kIo naming the holder of the lock, which may be this process, or the reason why the file
  /// cannot be created. REQUIRES that the folder exists.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  /// Returns the process that holds the lock of `folder`, e.g. "process 12 on host since ...", or nothing. Does not
  /// change the folder.
  static std::optional<std::string> holder(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;

 private:
  /// Removes the file and releases the lock.
  void release();

  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace evenkeel
