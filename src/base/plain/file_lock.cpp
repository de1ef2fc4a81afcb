#include "base/plain/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/file_system.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kLongest = size_t{1} << 20;     // bytes of a lock file
constexpr std::chrono::milliseconds kPause{10};  // between two looks at a lock
constexpr std::chrono::milliseconds kLook{20};   // how long holder() may hold a lock that it looks at
constexpr std::chrono::seconds kPatience{5};     // to wait for the end of a look
constexpr std::chrono::seconds kNaming{1};       // to wait for a new owner to write its name
constexpr std::string_view kTakeover = ".takeover";

/// Returns true if flock(2) failed because the file system has no locks.
bool has_no_locks(int error) { return error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EINVAL; }

/// Locks an open file without waiting. Sets errno on failure.
bool try_flock(int descriptor, int how) {
  int result = 0;
  do result = ::flock(descriptor, how | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

bool write_whole(int descriptor, std::string_view text) {
  return ::ftruncate(descriptor, 0) == 0 && write_all_at(descriptor, 0, text);
}

std::optional<LockOwner> owner_in(int descriptor) {
  std::string text;
  std::array<char, 4096> block{};
  for (int64_t length = 1; length > 0 && text.size() < kLongest;) {
    length = read_at(descriptor, static_cast<int64_t>(text.size()), block);
    if (length > 0) text.append(block.data(), static_cast<size_t>(length));
  }
  return LockOwner::read(text);
}

/// Returns whether `file` still names the open file. The previous holder may have removed the file in the meantime.
bool is_same_file(const fs::path& file, int descriptor) {
  struct stat opened = {}, current = {};
  return ::fstat(descriptor, &opened) == 0 && ::stat(file.c_str(), &current) == 0 && opened.st_ino == current.st_ino &&
         opened.st_dev == current.st_dev;
}

/// A file with the owner's text under a temporary name. Finds out whether its file system has locks.
class Prepared {
 public:
  Prepared(const fs::path& lock, const std::string& place) : file_(temporary_path_for(lock)) {
    const auto opened = try_open(file_, O_RDWR | O_CREAT | O_EXCL);
    EK_CHECK(opened.is_open(), kIo, place, ": cannot be locked: ", os_error_text(errno));
    if (!try_flock(opened.get(), LOCK_EX)) error_ = errno;
  }
  ~Prepared() { ::unlink(file_.c_str()); }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  /// Returns the error of flock(2), or 0.
  int error() const { return error_; }

  /// Gives the file its name, with the text in it. Returns false when the name exists. \throws kIo naming `place`
  bool place_as(const fs::path& lock, std::string_view text, const std::string& place) {
    {
      const auto opened = try_open(file_, O_WRONLY);
      EK_CHECK(opened.is_open() && write_whole(opened.get(), text), kIo, place,
               ": cannot be locked: ", os_error_text(errno));
    }
    if (::link(file_.c_str(), lock.c_str()) == 0 || has_two_names()) return true;
    return errno != EEXIST && create(lock, text, place);
  }

 private:
  /// Returns true after a link that was made although its answer was lost, as can happen on NFS.
  bool has_two_names() const {
    const int before = errno;
    struct stat status = {};
    const bool two = ::stat(file_.c_str(), &status) == 0 && status.st_nlink == 2;
    errno = before;
    return two;
  }

  /// For file systems without links.
  static bool create(const fs::path& lock, std::string_view text, const std::string& place) {
    const auto opened = try_open(lock, O_WRONLY | O_CREAT | O_EXCL);
    if (!opened.is_open() && errno == EEXIST) return false;
    EK_CHECK(opened.is_open() && write_whole(opened.get(), text), kIo, place,
             ": cannot be locked: ", os_error_text(errno));
    return true;
  }

  fs::path file_;
  int error_ = 0;
};

/// Returns the owner of a lock file, or nothing when the file is missing or names nobody for too long.
std::optional<LockOwner> owner_of(const fs::path& file) {
  const auto deadline = Clock::now() + kNaming;
  while (true) {
    const auto opened = try_open(file, O_RDONLY | O_NONBLOCK);
    if (!opened.is_open()) return std::nullopt;
    if (auto owner = owner_in(opened.get())) return owner;
    if (Clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
}

[[noreturn]] void refuse(const std::string& place, const std::string& holder) {
  throw InUse(kIo, concat(place, " is in use by ", holder, ": one process at a time works in it"));
}

/// Returns the name of an owner of whom nobody here knows whether it still runs.
std::string unproven_name(const LockOwner& owner, const fs::path& file) {
  return concat(owner.name(), " (its file system, ", file_system_of(file),
                ", has no locks: if that process has ended, remove ", file.string(), ")");
}

LockHolder holder_of(const LockOwner& owner) { return {.name = owner.name(), .note = owner.note}; }

/// Removes the lock file of an owner that has ended. One process at a time does this.
/// \throws kIo when another one does
void remove_ended(const fs::path& file, const std::string& place, const LockOwner& owner) {
  const FileLock guard(file.string() + std::string(kTakeover), place);
  if (owner_of(file) == owner) ::unlink(file.c_str());
}

/// Removes the lock file if its owner has ended. \throws kIo when the owner runs, or may run
void free_from(const fs::path& file, const std::string& place, const std::optional<LockOwner>& owner) {
  const auto runs = owner ? is_running(*owner) : Running::kUnknown;
  if (runs == Running::kYes) refuse(place, owner->name());
  if (runs == Running::kUnknown) refuse(place, unproven_name(owner.value_or(LockOwner{}), file));
  remove_ended(file, place, *owner);
}

void warn_once(const std::string& place, const fs::path& file, int error) {
  static std::atomic_flag warned;
  if (warned.test_and_set()) return;
  log::warning("[files] ", place, ": its file system (", file_system_of(file), ") has no locks (", os_error_text(error),
               "): the file ", file.filename().string(), ", which names this process, takes their place");
}

/// Refuses a file that another process has locked, unless that may be a process that only looks at it, as holder()
/// does. Then it pauses. \throws kIo naming the holder
void pause_for_looker(int descriptor, const std::string& place, Clock::time_point deadline) {
  const auto owner = owner_in(descriptor);
  if (owner && is_running(*owner) != Running::kNo) refuse(place, owner->name());
  if (Clock::now() > deadline) refuse(place, LockOwner{}.name());
  std::this_thread::sleep_for(kPause);
}

/// Locks the file by flock(2), and writes `text` into it. Returns the open file.
Descriptor lock_by_system(const fs::path& file, const std::string& place, const std::string& text) {
  const auto deadline = Clock::now() + kPatience;
  bool tried = false;
  while (true) {
    auto opened = try_open(file, O_RDWR | O_CREAT);
    EK_CHECK(opened.is_open(), kIo, place, ": cannot be locked: ", os_error_text(errno));
    if (!try_flock(opened.get(), LOCK_EX)) {
      EK_CHECK(errno == EWOULDBLOCK, kIo, place, ": cannot be locked: ", os_error_text(errno));
      if (std::exchange(tried, true))
        pause_for_looker(opened.get(), place, deadline);
      else
        std::this_thread::sleep_for(kLook);
      continue;
    }
    if (!is_same_file(file, opened.get())) continue;
    const auto before = owner_in(opened.get());
    if (before && !before->by_system) {
      free_from(file, place, before);
      continue;
    }
    write_whole(opened.get(), text);  // a failure to write the name does not affect the lock
    return opened;
  }
}

}  // namespace

FileLock::FileLock(fs::path file, const std::string& place, std::string note) : file_(std::move(file)) {
  auto owner = LockOwner::of_this_process(std::move(note));
  Prepared prepared(file_, place);
  if (prepared.error() == 0) {
    text_ = owner.text();
    descriptor_ = lock_by_system(file_, place, text_);
    return;
  }
  EK_CHECK(has_no_locks(prepared.error()), kIo, place, ": cannot be locked: ", os_error_text(prepared.error()));
  warn_once(place, file_, prepared.error());
  owner.by_system = false;
  while (!prepared.place_as(file_, owner.text(), place))
    if (const auto before = owner_of(file_); before || path_exists(file_)) free_from(file_, place, before);
  text_ = owner.text();
}

std::optional<LockHolder> FileLock::holder(const fs::path& file) {
  const auto opened = try_open(file, O_RDONLY | O_NONBLOCK);  // it may be a pipe
  struct stat status = {};
  if (!opened.is_open() || ::fstat(opened.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto owner = owner_in(opened.get());
  const bool refused = !try_flock(opened.get(), LOCK_SH);
  if (refused && errno == EWOULDBLOCK) return holder_of(owner.value_or(LockOwner{}));
  if (!owner || (!refused && owner->by_system)) return std::nullopt;  // a lock of the system would have been found
  const auto runs = is_running(*owner);
  if (runs == Running::kNo) return std::nullopt;
  auto holder = holder_of(*owner);
  holder.known_to_run = runs == Running::kYes;
  if (!holder.known_to_run) holder.name = unproven_name(*owner, file);
  return holder;
}

bool FileLock::belongs_to(const fs::path& file, std::string_view lock) {
  const auto guard = concat(lock, kTakeover);
  return file.filename() == lock || is_temporary_of(file, lock) || file.filename() == guard ||
         is_temporary_of(file, guard);
}

FileLock::~FileLock() { release(); }

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::move(other.file_)), text_(std::exchange(other.text_, {})), descriptor_(std::move(other.descriptor_)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  release();
  file_ = std::move(other.file_);
  text_ = std::exchange(other.text_, {});
  descriptor_ = std::move(other.descriptor_);
  return *this;
}

void FileLock::release() {
  if (text_.empty()) return;
  text_.clear();
  ::unlink(file_.c_str());  // before the lock is released: afterwards the file may belong to another process
  descriptor_.close();
}

}  // namespace evenkeel
