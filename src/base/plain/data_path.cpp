#include "base/plain/data_path.h"

#include <cstdlib>

#include "base/plain/error.h"
#include "base/plain/hub_cache.h"

namespace evenkeel {

fs::path expand_data_path(const std::string& path, std::string_view key) {
  constexpr std::string_view kPrefix = "$EVENKEEL_DATA/";
  if (!path.empty()) check_path_text(path, key);
  if (path.starts_with(kHubAddress)) return cached_file(path, key);
  if (!path.starts_with(kPrefix)) return path;
  const char* folder = std::getenv("EVENKEEL_DATA");
  EK_CHECK(folder != nullptr, kConfig, key, " is ", path, ", but the environment variable EVENKEEL_DATA is not set");
  check_path_text(folder, "EVENKEEL_DATA");
  return fs::path(folder) / path.substr(kPrefix.size());
}

}  // namespace evenkeel
