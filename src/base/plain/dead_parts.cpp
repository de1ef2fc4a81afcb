#include "base/plain/dead_parts.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/plain/folders.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

/// Returns the name of the file that a temporary file was to become; empty if `file` is no temporary file.
std::string_view written_name(std::string_view name) {
  const auto written = name.substr(0, std::min(name.rfind(".part-"), name.size()));
  return is_temporary_of(fs::path(name), written) ? written : std::string_view();
}

/// Returns true if `file` names the open file.
bool names(const fs::path& file, int descriptor) {
  struct stat opened = {}, current = {};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(file.c_str(), &current) == 0 && opened.st_ino == current.st_ino &&
         opened.st_dev == current.st_dev;
}

bool is_of_this_process(std::string_view name) {
  const auto rest = name.substr(name.rfind(".part-") + std::string_view(".part-").size());
  return parse_number<pid_t>(rest.substr(0, rest.find('-'))) == ::getpid();
}

/// Returns true if the file was last written to at least so long ago.
bool is_older(const fs::path& file, std::chrono::seconds age) {
  std::error_code unknown;
  const auto written = fs::last_write_time(file, unknown);
  return age.count() == 0 || (!unknown && fs::file_time_type::clock::now() - written >= age);
}

/// Removes a temporary file unless a process holds its lock.
void remove_if_dead(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  const bool dead = locked || (errno != EWOULDBLOCK && !is_of_this_process(file.filename().string()));
  if (dead && names(file, descriptor)) ::unlink(file.c_str());
  ::close(descriptor);
}

}  // namespace

bool lock_part(const fs::path& file, int descriptor) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return names(file, descriptor);
}

void remove_dead_parts(const fs::path& folder, const std::function<bool(std::string_view name)>& is_own,
                       std::chrono::seconds age) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    const auto name = entry->path().filename().string();
    const auto written = written_name(name);
    if (!written.empty() && is_own(written) && is_older(entry->path(), age)) remove_if_dead(entry->path());
  }
}

void remove_dead_parts_of(const fs::path& file) {
  const auto folder = file.parent_path();
  const auto own = file.filename().string();
  remove_dead_parts(folder.empty() ? "." : folder, [&](std::string_view name) { return name == own; });
}

}  // namespace evenkeel
