#include "base/plain/cache_folder.h"

#include <cstdlib>
#include <utility>

namespace evenkeel {

std::filesystem::path cache_folder() {
  for (const auto& [variable, below] : {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", ".cache"}}) {
    const char* given = std::getenv(variable);
    if (given && std::filesystem::path(given).is_absolute()) return std::filesystem::path(given) / below / "evenkeel";
  }
  return {};
}

}  // namespace evenkeel
