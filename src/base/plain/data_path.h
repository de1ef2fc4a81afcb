/// \file  Resolves paths that settings and flags name: in the home folder, below $EVENKEEL_DATA, or in the local hub
/// cache.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/plain/files.h"

namespace evenkeel {

/// Replaces "~" at the start of `path` by the value of $HOME if it is the whole path or a slash follows, as in a shell.
/// Other paths are returned unchanged; "./~" is a path whose first part is named "~".
/// \param key  the setting or flag that holds the path, for messages
/// \throws kConfig for "~user", whose home folder is not looked up, and when HOME is not set.
std::string expand_home(const std::string& path, std::string_view key);

/// Replaces a leading "~" as expand_home(), "$EVENKEEL_DATA/" by the value of that environment variable, "builtin:" by
/// the shipped folder assets/, and "hf://..." by its path in the local hub cache (base/plain/hub_cache.h). "" stays "".
/// \param key  the setting that holds the path, for messages
/// \throws kConfig as expand_home(), when the variable is not set, the cache does not have the repository, or
/// check_path_text() refuses the path.
fs::path expand_data_path(const std::string& path, std::string_view key);

/// Returns the absolute form of a path, without parts "." and a slash at the end, so that it names the same file from
/// every working folder. Links are not followed, so parts ".." stay. An empty path stays empty.
std::string absolute_path(const fs::path& path);

}  // namespace evenkeel
