#include "base/system/folder_lock.h"

namespace evenkeel {

std::optional<std::string> FolderLock::holder(const std::filesystem::path& folder) {
  const auto owner = FileLock::holder(folder / kFile);
  return owner ? std::optional(owner->name()) : std::nullopt;
}

}  // namespace evenkeel
