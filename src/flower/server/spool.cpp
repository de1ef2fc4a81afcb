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

Descriptor unnamed_file(const fs::path& folder) {
  make_folders(folder);
  std::string pattern = (folder / "spool-XXXXXX").string();
  Descriptor file(::mkostemp(pattern.data(), O_CLOEXEC));
  EK_CHECK(file.is_open(), kIo, folder.string(), ": no file can be made: ", os_error_text(errno));
  ::unlink(pattern.c_str());
  return file;
}

}  // namespace

uint64_t Spool::put(std::string_view bytes) {
  EK_CHECK(bytes.size() <= most_ - bytes_, kData, "more than ", most_,
           " bytes came before it was known where they belong");
  if (!file_.is_open()) file_ = unnamed_file(folder_);
  const uint64_t begin = bytes_;
  EK_CHECK(write_all_at(file_.get(), static_cast<int64_t>(begin), bytes), kIo, folder_.string(),
           ": cannot be written: ", os_error_text(errno));
  bytes_ += bytes.size();
  return begin;
}

std::string Spool::get(uint64_t at, size_t length) const {
  std::string bytes(length, '\0');
  const int64_t done = read_at(file_.get(), static_cast<int64_t>(at), bytes);
  EK_CHECK(done == static_cast<int64_t>(length), kIo, folder_.string(),
           ": what was spooled cannot be read: ", os_error_text(done < 0 ? errno : EIO));
  return bytes;
}

}  // namespace evenkeel::flower
