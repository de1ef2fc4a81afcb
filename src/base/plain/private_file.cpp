#include "base/plain/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

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
  EK_CHECK(::stat(file.c_str(), &status) == 0 && (status.st_mode & 077) == 0, kConfig, file.string(),
           " may be read by others; run: chmod 600 ", file.string());
}

}  // namespace evenkeel
