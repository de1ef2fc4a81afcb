/// \file  The mapped files of this process, by address: who is at fault when a page cannot be read, and whether a file
/// has changed since. Private to the base room.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>

namespace evenkeel {

/// Enters a mapping; the first call installs the handler of SIGBUS. \param status  of the file, when it was mapped
void enter_mapping(const void* address, size_t size, const std::filesystem::path& file, const struct stat& status);
/// Call before it is unmapped.
void leave_mapping(const void* address);

}  // namespace evenkeel
