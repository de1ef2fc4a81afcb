/// \file  Locks a file for one process. This is the only lock of files and folders in the project.
/// Example:  const FileLock lock(folder / ".lock", folder.string());  // throws when another process holds it
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/plain/descriptor.h"
#include "base/plain/error.h"
#include "base/plain/lock_owner.h"

namespace evenkeel {

/// A process that holds a lock.
struct LockHolder {
  std::string name;          ///< "process 12 on host since ...", with what to do if it may have ended
  std::string note;          ///< what it does with the lock
  bool known_to_run = true;  ///< false: it may have ended
};

/// Thrown, with kIo, when another process or object holds the lock.
class InUse : public Error {
 public:
  using Error::Error;
};

/// Holds a lock until it is destroyed. The lock is a file that names its owner (LockOwner).
///
/// On most file systems the file is also locked by flock(2), which the system releases when the process ends, even
/// after a crash. A file that no living process has locked has no effect then.
///
/// File systems without flock (NFS without a lock daemon, Lustre without the mount option flock, some FUSE file
/// systems) return ENOSYS, ENOLCK, EOPNOTSUPP or EINVAL. There the existence of the file is the lock: it is made by
/// link(2), or with O_EXCL where links are missing, and the process warns once. A file whose owner ran on this host and
/// has ended is taken over. A file of another host is refused, because nobody can tell here whether its owner still
/// runs.
///
/// Threads: one per object. A lock excludes other objects of the same process too.
class FileLock {
 public:
  /// Takes the lock. \throws InUse naming the holder of the lock; kIo when the file cannot be created
  /// \param file   the lock file, in a folder that exists; the destructor removes it
  /// \param place  what is locked, for messages
  /// \param note   what this process does with it; others can read it by holder()
  FileLock(std::filesystem::path file, const std::string& place, std::string note = {});
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

  /// Returns who holds the lock, or nothing. Changes no file.
  static std::optional<LockHolder> holder(const std::filesystem::path& file);

  /// Returns true if `file` has the name of the lock file `lock`, or of a temporary file that a killed process left
  /// when it took that lock. \param lock  a file name without its path
  static bool belongs_to(const std::filesystem::path& file, std::string_view lock);

 private:
  /// Removes the file and releases the lock.
  void release();

  std::filesystem::path file_;
  std::string text_;       // of the owner; empty when nothing is held
  Descriptor descriptor_;  // locked by flock(2), or none
};

}  // namespace evenkeel
