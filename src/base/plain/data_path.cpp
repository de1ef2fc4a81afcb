#include "base/plain/data_path.h"

#include <cstdlib>

#include "base/plain/error.h"
#include "base/plain/hub_cache.h"

namespace evenkeel {

std::string expand_home(const std::string& path, std::string_view key) {
  if (!path.starts_with('~')) return path;
  const auto name = path.substr(0, path.find('/'));
  EK_CHECK(name == "~", kConfig, key, " is ", path, ", but the home folder of a user (", name,
           ") is not looked up, allowed: ~/ and whole paths");
  const char* home = std::getenv("HOME");
  EK_CHECK(home != nullptr && *home != '\0', kConfig, key, " is ", path,
           ", but the environment variable HOME is not set");
  check_path_text(home, "HOME");
  const std::string folder = home, rest = path.substr(1);
  return folder.ends_with('/') && rest.starts_with('/') ? folder + rest.substr(1) : folder + rest;
}

fs::path expand_data_path(const std::string& path, std::string_view key) {
  constexpr std::string_view kPrefix = "$EVENKEEL_DATA/", kBuiltin = "builtin:";
  if (!path.empty()) check_path_text(path, key);
  if (path.starts_with(kHubAddress)) return cached_file(path, key);
  if (path.starts_with(kBuiltin)) return shipped_folder() / "assets" / path.substr(kBuiltin.size());
  if (!path.starts_with(kPrefix)) return expand_home(path, key);
  const char* folder = std::getenv("EVENKEEL_DATA");
  EK_CHECK(folder != nullptr, kConfig, key, " is ", path, ", but the environment variable EVENKEEL_DATA is not set");
  check_path_text(folder, "EVENKEEL_DATA");
  return fs::path(expand_home(folder, "EVENKEEL_DATA")) / path.substr(kPrefix.size());
}

std::string absolute_path(const fs::path& path) {
  fs::path whole;
  for (const auto& part : path.empty() ? path : fs::absolute(path))
    if (part != "." && !part.empty()) whole /= part;
  return whole.string();
}

}  // namespace evenkeel
