#include "base/plain/atomic_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/folders.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

struct stat details_of(const fs::path& path) {
  struct stat status = {};
  EK_CHECK(::stat(path.c_str(), &status) == 0, kIo, path.string(), ": ", os_error_text(errno));
  return status;
}

/// A rename cannot replace a mount point. The check fails early instead of after the work.
void check_no_mount_point(const fs::path& folder) {
  EK_CHECK(!path_exists(folder) || details_of(folder).st_dev == details_of(folder.parent_path()).st_dev, kIo,
           folder.string(), ": is a mount point; name a folder inside it");
}

/// Names the lock of a ".part" folder. The lock lies next to the folder, because the folder is renamed.
fs::path lock_of(const fs::path& part) { return part.string() + ".lock"; }

/// Resolves an output folder that is a link, because a rename would replace the link itself.
fs::path final_place(const fs::path& folder) {
  const auto place = without_trailing_slash(folder);
  std::error_code error;
  return fs::is_symlink(place, error) ? link_target(place) : place;
}

/// Empties the ".part" folder. \param was_locked  whether its lock lay beside it, as a killed process leaves it
void empty_part(const fs::path& part, bool was_locked) {
  const auto entries = entries_of(part);
  EK_CHECK(was_locked || entries.empty(), kIo, part.string(), ": is not empty, and no ",
           lock_of(part).filename().string(),
           " beside it shows that a killed process left it: move it away, or choose another --out");
  for (const auto& entry : entries) remove_path(entry);
}

/// Removes the files of processes that were killed while they locked. A process that tries to lock now is refused with
/// or without its file, because the caller holds the lock.
void remove_unfinished_locks(const fs::path& lock) {
  std::error_code ignored;  // a file of another user may stay
  for (fs::directory_iterator entry(lock.parent_path(), ignored), end; entry != end; entry.increment(ignored))
    if (is_temporary_of(entry->path(), lock.filename().string())) fs::remove(entry->path(), ignored);
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& folder) : folder_(final_place(folder)), part_(folder_.string() + ".part") {
  check_new_folder(folder_);
  make_folders(folder_.parent_path());
  check_writable_folder(folder_.parent_path());
  check_no_mount_point(folder_);
  const bool was_locked = path_exists(lock_of(part_));
  FileLock lock(lock_of(part_), part_.string());
  make_folders(part_);
  remove_unfinished_locks(lock_of(part_));
  empty_part(part_, was_locked);
  lock_ = std::move(lock);
}

AtomicFolder::~AtomicFolder() {
  if (!lock_) return;
  std::error_code ignored;  // a destructor does not throw; the next writer removes leftovers
  fs::remove_all(part_, ignored);
}

void AtomicFolder::commit() {
  flush_folder(part_);
  EK_CHECK(::rename(part_.c_str(), folder_.c_str()) == 0, kIo, folder_.string(),
           ": cannot be put in place: ", os_error_text(errno));
  lock_.reset();
  flush_folder(folder_.parent_path());
}

}  // namespace evenkeel
