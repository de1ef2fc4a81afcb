/// \file  Locks the state of a study (study.json) while it is changed.
#pragma once

#include <filesystem>

#include "base/system/folder_lock.h"

namespace evenkeel::study {

/// Locks the folder for one change of study.json. Waits up to half a minute while another process holds the lock.
/// \throws kIo naming the process that holds the lock
FolderLock lock_state(const std::filesystem::path& folder);

}  // namespace evenkeel::study
