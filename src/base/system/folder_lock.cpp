#include "base/system/folder_lock.h"

#include <utility>

#include "base/plain/error.h"

namespace evenkeel {

std::optional<std::string> FolderLock::holder(const std::filesystem::path& folder) {
  auto holder = FileLock::holder(folder / kFile);
  return holder ? std::optional(std::move(holder->name)) : std::nullopt;
}

void FolderLock::check_free(const std::filesystem::path& folder, std::string_view advice) {
  const auto holder = FileLock::holder(folder / kFile);
  EK_CHECK(!holder, kIo, folder.string(), " is in use by ", holder->name,
           holder->known_to_run ? concat(": one process at a time works in it; ", advice) : "");
}

}  // namespace evenkeel
