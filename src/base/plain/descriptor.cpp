#include "base/plain/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

/// Calls `write_some` with what is left until nothing is left. \return false: errno says why
bool write_pieces(std::string_view bytes, const auto& write_some) {
  while (!bytes.empty()) {
    const ssize_t done = write_some(bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EIO;
    if (done <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  close();
  number_ = std::exchange(other.number_, -1);
  return *this;
}

void Descriptor::close() noexcept {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Descriptor try_open(const std::filesystem::path& file, int flags, mode_t mode) {
  return Descriptor(::open(file.c_str(), flags | O_CLOEXEC, mode));
}

Descriptor open_file(const std::filesystem::path& file, int flags) {
  auto opened = try_open(file, flags);
  EK_CHECK(opened.is_open(), kIo, file.string(), ": cannot be opened: ", os_error_text(errno));
  return opened;
}

bool write_all(int descriptor, std::string_view bytes) {
  return write_pieces(bytes, [&](std::string_view rest) { return ::write(descriptor, rest.data(), rest.size()); });
}

bool write_all_at(int descriptor, int64_t offset, std::string_view bytes) {
  const int64_t end = offset + static_cast<int64_t>(bytes.size());
  return write_pieces(bytes, [&](std::string_view rest) {
    return ::pwrite(descriptor, rest.data(), rest.size(), end - static_cast<int64_t>(rest.size()));
  });
}

int64_t read_at(int descriptor, int64_t offset, std::span<char> into) {
  size_t length = 0;
  while (length < into.size()) {
    const auto rest = into.subspan(length);
    const ssize_t done = ::pread(descriptor, rest.data(), rest.size(), offset + static_cast<int64_t>(length));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return -1;
    if (done == 0) break;
    length += static_cast<size_t>(done);
  }
  return static_cast<int64_t>(length);
}

}  // namespace evenkeel
