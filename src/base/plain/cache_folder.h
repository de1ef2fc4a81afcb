/// \file  Names the folder in which the program keeps what it can make again. Does not depend on LibTorch.
#pragma once

#include <filesystem>

namespace evenkeel {

/// Returns $XDG_CACHE_HOME/evenkeel or ~/.cache/evenkeel, or an empty path if neither is absolute. The folder may be
/// missing.
std::filesystem::path cache_folder();

}  // namespace evenkeel
