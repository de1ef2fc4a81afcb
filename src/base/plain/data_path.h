/// \file  Resolves paths of data that settings name: below $EVENKEEL_DATA, or in the local hub cache.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/plain/files.h"

namespace evenkeel {

/// Replaces a leading "$EVENKEEL_DATA/" of `path` by the value of that environment variable, and an address
/// "hf://..." by its path in the local hub cache (base/plain/hub_cache.h). An empty path stays empty.
/// \param key  the setting that holds the path, for messages
/// \throws kConfig when the variable is not set, the cache does not have the repository, or check_path_text() refuses
/// the path.
fs::path expand_data_path(const std::string& path, std::string_view key);

}  // namespace evenkeel
