#include "base/plain/folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

constexpr std::string_view kPart = ".part-";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EK_CHECK(descriptor >= 0, kIo, folder.string(), ": cannot be opened: ", os_error_text(errno));
  const int failure = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems cannot flush a folder and say so by EINVAL.
  EK_CHECK(failure == 0 || failure == EINVAL, kIo, folder.string(), ": cannot be flushed: ", os_error_text(failure));
}

fs::path temporary_path_for(const fs::path& file) {
  static std::atomic<unsigned> serial{0};
  return concat(file.string(), kPart, ::getpid(), "-", serial.fetch_add(1));
}

bool is_part_of(const fs::path& file, std::string_view written) {
  const std::string name = file.filename().string();
  std::string_view rest = name;
  if (!rest.starts_with(written)) return false;
  rest.remove_prefix(written.size());
  if (!rest.starts_with(kPart)) return false;
  rest.remove_prefix(kPart.size());
  const size_t dash = rest.find('-');
  return dash != std::string_view::npos && is_number(rest.substr(0, dash)) && is_number(rest.substr(dash + 1));
}

void shorten_file(const fs::path& file, int64_t bytes) {
  if (!path_exists(file) || evenkeel::file_size(file) <= static_cast<uint64_t>(bytes)) return;
  std::error_code error;
  fs::resize_file(file, static_cast<uintmax_t>(bytes), error);
  EK_CHECK(!error, kIo, file.string(), ": cannot be cut to ", bytes, " bytes: ", os_error_text(error.value()));
}

}  // namespace evenkeel
