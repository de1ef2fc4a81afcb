/// \file  Prepares the folder of a new run (fed/run/run_folder.h), and tells whether a run began in a folder.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/system/folder_lock.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {

/// Marker file in a folder from prepare_folder() until the manifest is written. While it exists, all other files are
/// replaced.
inline constexpr std::string_view kUnfinished = run_file(".unfinished");

/// Creates or takes over a folder for a new run and locks it. The folder may exist if it is empty but for rows/, or
/// if a run was stopped there before it began.
/// \param goes_on  true: keep federation/ of a server that waited here (awaits_clients())
/// \throws kIo when the folder holds anything else, also such a federation without `goes_on`, is not writable, or is
/// in use by another process; the message says what the user can do
FolderLock prepare_folder(const std::filesystem::path& folder, bool goes_on = false);
/// Removes what prepare_folder() and RunFolder::create() made in a new folder, when no run begins there.
void abandon_folder(const std::filesystem::path& folder, FolderLock lock);

/// Returns true if the folder holds a run.
bool holds_run(const std::filesystem::path& folder);
/// Returns true if the folder does not exist, is empty but for rows/, or holds only files that an interrupted
/// RunFolder::create() or a server that waited for its clients left.
bool nothing_began(const std::filesystem::path& folder);
/// Returns true if no run began in the folder yet, but a server waited there for the clients of one: federation/ has
/// the nodes that it knows and the clients that have joined.
bool awaits_clients(const std::filesystem::path& folder);

/// Checks that no other process works in the folder. \throws kIo with advice
void check_unused(const std::filesystem::path& folder);
/// Removes temporary files that killed processes have left of the files that a run writes.
void remove_leftover_parts(const std::filesystem::path& folder);

}  // namespace evenkeel::fed
