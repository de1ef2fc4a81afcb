#include "base/system/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/plain/clock.h"
#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this machine";
}

/// Returns whether `file` still names the open file. The previous holder may have removed the file in the meantime.
bool is_same_file(const fs::path& file, int descriptor) {
  struct stat opened = {}, current = {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(file.c_str(), &current) == 0 && opened.st_ino == current.st_ino &&
         opened.st_dev == current.st_dev;
}

/// Returns the holder's name from the lock file. The holder may not have written it yet.
std::string holder_in(int descriptor) {
  std::array<char, 400> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  std::string line(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
  line.resize(std::min(line.size(), line.find('\n')));
  return line.empty() ? "another process" : line;
}

/// Tries to lock a file twice, because holder() locks it for a moment. Sets errno on failure.
bool try_flock(int descriptor, int how) {
  if (::flock(descriptor, how | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return ::flock(descriptor, how | LOCK_NB) == 0;
}

/// Opens and locks the file. Returns -1 if it has to be opened again.
int try_lock(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  EK_CHECK(descriptor >= 0, kIo, file.parent_path().string(), ": cannot be locked: ", std::strerror(errno));
  if (try_flock(descriptor, LOCK_EX)) {
    if (is_same_file(file, descriptor)) return descriptor;
    ::close(descriptor);
    return -1;
  }
  const int reason = errno;
  const auto holder_name = holder_in(descriptor);
  ::close(descriptor);
  EK_CHECK(reason == EWOULDBLOCK, kIo, file.parent_path().string(), ": cannot be locked: ", std::strerror(reason));
  fail(kIo, file.parent_path().string(), " is in use by ", holder_name, ": one process at a time works in it");
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : file_(folder / kFile) {
  while (descriptor_ < 0) descriptor_ = try_lock(file_);
  const auto line = concat("process ", ::getpid(), " on ", host_name(), " since ", utc_now(), '\n');
  // A failure to write the name does not affect the lock.
  if (::ftruncate(descriptor_, 0) == 0) [[maybe_unused]]
    const auto done = ::pwrite(descriptor_, line.data(), line.size(), 0);
}

std::optional<std::string> FolderLock::holder(const fs::path& folder) {
  const int descriptor = ::open((folder / kFile).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // it may be a pipe
  if (descriptor < 0) return std::nullopt;
  std::optional<std::string> who;
  if (!try_flock(descriptor, LOCK_SH) && errno == EWOULDBLOCK) who = holder_in(descriptor);
  ::close(descriptor);
  return who;
}

FolderLock::~FolderLock() { release(); }

FolderLock::FolderLock(FolderLock&& other) noexcept
    : file_(std::move(other.file_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  release();
  file_ = std::move(other.file_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

void FolderLock::release() {
  if (descriptor_ < 0) return;
  ::unlink(file_.c_str());  // before the lock is released: afterwards the file may belong to another process
  ::close(std::exchange(descriptor_, -1));
}

}  // namespace evenkeel
