#include "base/plain/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

/// Writes all bytes, flushes the file and closes it. \return 0, or the number of the system's error
int write_and_close(int descriptor, std::string_view bytes) {
  bool good = true;
  while (good && !bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    good = written > 0 || (written < 0 && errno == EINTR);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  good = good && ::fsync(descriptor) == 0;
  const int error = errno;
  ::close(descriptor);
  return good ? 0 : error;
}

void check_written(const fs::path& file, int error) {
  EK_CHECK(error == 0, kIo, file.string(), " cannot be written: ", os_error_text(error));
}

}  // namespace

bool write_new_private_file(const fs::path& file, std::string_view bytes) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0 && errno == EEXIST) return false;
  EK_CHECK(descriptor >= 0, kIo, file.string(), " cannot be made: ", os_error_text(errno));
  const int error = write_and_close(descriptor, bytes);
  if (error != 0) ::unlink(file.c_str());
  check_written(file, error);
  return true;
}

void overwrite_private_file(const fs::path& file) {
  if (!is_file(file)) return;
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  EK_CHECK(descriptor >= 0, kIo, file.string(), " cannot be written: ", os_error_text(errno));
  check_written(file, write_and_close(descriptor, std::string(evenkeel::file_size(file), '\0')));
}

void require_private_file(const fs::path& file) {
  struct stat status {};
  EK_CHECK(::stat(file.c_str(), &status) == 0 && (status.st_mode & 077) == 0, kConfig, file.string(),
           " may be read by others; run: chmod 600 ", file.string());
}

}  // namespace evenkeel
