#include "flower/federation/arrivals.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kArriving = "arriving-";

/// Makes a file of `bytes` bytes that has all its blocks: a disk that becomes full while a mapping of a sparse file is
/// written would end the process. \throws kIo
void make_whole_file(const fs::path& file, int64_t bytes) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  EK_CHECK(descriptor >= 0, kIo, file.string(), ": cannot be made: ", os_error_text(errno));
  int failure = 0;
  do {
    failure = bytes > 0 ? ::posix_fallocate(descriptor, 0, bytes) : 0;
  } while (failure == EINTR);
  ::close(descriptor);
  if (failure != 0) ::unlink(file.c_str());
  EK_CHECK(failure == 0, kIo, file.string(), ": no place for an upload of ", bytes, " bytes: ", os_error_text(failure));
}

}  // namespace

at::Tensor mapped_buffer(const fs::path& folder, int64_t bytes) {
  static std::atomic<int64_t> next = 0;
  make_folders(folder);
  const auto file = folder / concat(kArriving, ::getpid(), "-", next++);
  make_whole_file(file, bytes);
  try {
    auto buffer_N = at::from_file(file.string(), true, bytes, at::kByte);
    remove_path(file);
    return buffer_N;
  } catch (const c10::Error& error) {
    remove_path(file);
    fail(kIo, file.string(), ": cannot be mapped: ", error.what_without_backtrace());
  }
}

void remove_arrivals(const fs::path& folder) {
  if (!is_folder(folder)) return;
  for (const auto& entry : entries_of(folder))
    if (entry.filename().string().starts_with(kArriving)) remove_path(entry);
}

}  // namespace evenkeel::flower
