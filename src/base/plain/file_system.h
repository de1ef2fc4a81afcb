/// \file  Names the file system that a path lies on. Does not depend on LibTorch.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel {

/// Returns type and mount point of the file system of `path`, e.g. "nfs4 at /home", or "unknown" when it cannot be
/// found. The path need not exist.
/// \param mounts  a list of mounts as proc(5) describes it
std::string file_system_of(const std::filesystem::path& path,
                           const std::filesystem::path& mounts = "/proc/self/mountinfo");

}  // namespace evenkeel
