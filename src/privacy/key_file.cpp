#include "privacy/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"

namespace evenkeel::privacy {
namespace {

void write_secret(const fs::path& file, const crypto::Secret& secret) {
  const auto bytes = secret.bytes();
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  EK_CHECK(descriptor >= 0, kIo, file.string(), " cannot be made: ", os_error_text(errno));
  const bool written =
      ::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && ::fsync(descriptor) == 0;
  const int error = errno;
  ::close(descriptor);
  EK_CHECK(written, kIo, file.string(), " cannot be written: ", os_error_text(error));
}

void make_key(const fs::path& file) {
  const auto half_made = fs::path(file).concat(".new");
  remove_path(half_made);  // left by a process that was killed
  write_secret(half_made, crypto::Secret::random());
  std::error_code error;
  fs::rename(half_made, file, error);
  EK_CHECK(!error, kIo, file.string(), " cannot be made: ", error.message());
  flush_files(std::array{file});
}

}  // namespace

crypto::Secret key_in(const fs::path& file) {
  constexpr size_t kBytes = 32;
  if (!path_exists(file)) make_key(file);
  struct stat status {};
  EK_CHECK(::stat(file.c_str(), &status) == 0 && (status.st_mode & 077) == 0, kConfig, file.string(),
           " may be read by others; run: chmod 600 ", file.string());
  auto text = read_file(file, kBytes);
  auto secret = crypto::Secret::from(text, file.string());
  crypto::wipe(text);
  return secret;
}

}  // namespace evenkeel::privacy
