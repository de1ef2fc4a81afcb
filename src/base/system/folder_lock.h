/// \file  One process per folder, by a lock that the system lets go of when its process ends, however it ends.
/// Example:  const FolderLock lock(run);  // throws when another process works there
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace evenkeel {

/// Holds `folder` as long as it lives. The lock is an flock(2) on the file `.lock`, which names process, machine and
/// time for whoever comes second; a file without a living process behind it means nothing. Readers need no lock.
class FolderLock {
 public:
  static constexpr const char* kFile = ".lock";

  /// \throws kIo saying who holds the folder, or why the file cannot be made. REQUIRES that the folder exists.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  /// Who works in `folder`: "process 12 on host since ..."; nothing when nobody does. Changes nothing.
  static std::optional<std::string> holder(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;

 private:
  void release();

  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace evenkeel
