#include "flower/server/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"

namespace evenkeel::flower {
namespace {

int unnamed_file(const fs::path& folder) {
  make_folders(folder);
  std::string pattern = (folder / "spool-XXXXXX").string();
  const int file = ::mkostemp(pattern.data(), O_CLOEXEC);
  EK_CHECK(file >= 0, kIo, folder.string(), ": no file can be made: ", os_error_text(errno));
  ::unlink(pattern.c_str());
  return file;
}

}  // namespace

Spool::~Spool() {
  if (file_ >= 0) ::close(file_);
}

uint64_t Spool::put(std::string_view bytes) {
  EK_CHECK(bytes.size() <= most_ - bytes_, kData, "more than ", most_,
           " bytes came before it was known where they belong");
  if (file_ < 0) file_ = unnamed_file(folder_);
  const uint64_t begin = bytes_;
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
    if (written < 0 && errno == EINTR) continue;
    EK_CHECK(written > 0, kIo, folder_.string(), ": cannot be written: ", os_error_text(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
    bytes_ += static_cast<uint64_t>(written);
  }
  return begin;
}

std::string Spool::get(uint64_t at, size_t length) const {
  std::string bytes(length, '\0');
  for (size_t done = 0; done < length;) {
    const ssize_t read = ::pread(file_, bytes.data() + done, length - done, static_cast<off_t>(at + done));
    if (read < 0 && errno == EINTR) continue;
    EK_CHECK(read > 0, kIo, folder_.string(), ": what was spooled cannot be read: ", os_error_text(errno));
    done += static_cast<size_t>(read);
  }
  return bytes;
}

}  // namespace evenkeel::flower
