/// \file  Removes temporary files of atomic writes (AtomicFile in base/plain/files.h) that killed processes have left.
/// A writer holds a lock on its temporary file by flock(2), which ends with the process, so that a file that is being
/// written is told from one that was left. On file systems without flock only files of other processes are removed
/// there; call these functions only for what one process at a time writes. Does not depend on LibTorch.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string_view>

namespace evenkeel {

/// Removes the temporary files of `file` that nobody writes any more. Errors are ignored: a file that stays does no
/// harm. Cost: one listing of the folder. Threads: any.
void remove_dead_parts_of(const std::filesystem::path& file);

/// Removes the temporary files in a folder that nobody writes any more. Does nothing when there is no such folder.
/// Errors are ignored.
/// \param is_own  tells from the name of the file that was to be written, without its path, whether it is one of those
/// that this program writes there; other files stay
/// \param age     files that were written to less than so long ago stay. For folders in which processes of several
/// machines write, whose locks may not be seen here
void remove_dead_parts(const std::filesystem::path& folder, const std::function<bool(std::string_view name)>& is_own,
                       std::chrono::seconds age = std::chrono::seconds(0));

/// Locks an open temporary file for as long as it is open. \return false when the file must not be written, because
/// remove_dead_parts() has taken it for one that was left
bool lock_part(const std::filesystem::path& file, int descriptor);

}  // namespace evenkeel
