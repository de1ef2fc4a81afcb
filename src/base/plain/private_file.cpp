#include "base/plain/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/descriptor.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

/// Writes all bytes, flushes the file and closes it. \return 0, or the number of the system's error
int write_and_close(Descriptor descriptor, std::string_view bytes) {
  const bool good = write_all(descriptor.get(), bytes) && ::fsync(descriptor.get()) == 0;
  return good ? 0 : errno;
}

void check_written(const fs::path& file, int error) {
  EK_CHECK(error == 0, kIo, file.string(), " cannot be written: ", os_error_text(error));
}

/// An entry of a POSIX access control list, as the extended attribute stores it (linux/posix_acl_xattr.h).
struct AclEntry {
  uint16_t tag = 0, rights = 0;
  uint32_t id = 0;  // of the user or group
};

/// Returns the entries of a file's access control list; none if it has no such list, or one that cannot be read.
std::vector<AclEntry> acl_of(const fs::path& file) {
  constexpr size_t kHeader = 4, kMostEntries = 64;  // a list of more entries is not read
  std::array<char, kHeader + kMostEntries * sizeof(AclEntry)> bytes{};
  const auto size = ::getxattr(file.c_str(), "system.posix_acl_access", bytes.data(), bytes.size());
  if (size <= static_cast<ssize_t>(kHeader)) return {};
  std::vector<AclEntry> entries((static_cast<size_t>(size) - kHeader) / sizeof(AclEntry));
  std::memcpy(entries.data(), bytes.data() + kHeader, entries.size() * sizeof(AclEntry));
  return entries;
}

/// Returns true if an access control list gives rights to the owner and the user of this process alone. The group bits
/// of such a file's mode are the most that the list may give, not rights of its group.
bool is_for_this_user(const fs::path& file) {
  constexpr uint16_t kOwner = 0x01, kUser = 0x02, kMask = 0x10;
  const auto entries = acl_of(file);
  return !entries.empty() && std::all_of(entries.begin(), entries.end(), [](const AclEntry& entry) {
    return entry.rights == 0 || entry.tag == kOwner || entry.tag == kMask ||
           (entry.tag == kUser && entry.id == ::geteuid());
  });
}

}  // namespace

bool write_new_private_file(const fs::path& file, std::string_view bytes) {
  auto opened = try_open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!opened.is_open() && errno == EEXIST) return false;
  EK_CHECK(opened.is_open(), kIo, file.string(), " cannot be made: ", os_error_text(errno));
  const int error = write_and_close(std::move(opened), bytes);
  if (error != 0) ::unlink(file.c_str());
  check_written(file, error);
  return true;
}

void overwrite_private_file(const fs::path& file) {
  if (!is_file(file)) return;
  auto opened = try_open(file, O_WRONLY | O_NOFOLLOW);
  EK_CHECK(opened.is_open(), kIo, file.string(), " cannot be written: ", os_error_text(errno));
  check_written(file, write_and_close(std::move(opened), std::string(evenkeel::file_size(file), '\0')));
}

void require_private_file(const fs::path& file) {
  struct stat status {};
  const bool is_known = ::stat(file.c_str(), &status) == 0;
  EK_CHECK(is_known && ((status.st_mode & 077) == 0 || is_for_this_user(file)), kConfig, file.string(),
           " may be read by others; run: chmod 600 ", file.string());
}

}  // namespace evenkeel
