#include "base/plain/folders.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/plain/error.h"
#include "base/plain/os_error.h"

namespace evenkeel {
namespace {

constexpr std::string_view kPart = ".part-";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

fs::path without_trailing_slash(const fs::path& path) {
  const auto whole = (fs::current_path() / path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

fs::path parent_of(const fs::path& path) { return without_trailing_slash(path).parent_path(); }

fs::path link_target(fs::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i)
    path = path.parent_path() / fs::read_symlink(path, error);
  const auto found = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::absolute(path) : found;
}

void flush_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  EK_CHECK(descriptor >= 0, kIo, folder.string(), ": cannot be opened: ", os_error_text(errno));
  const int failure = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems cannot flush a folder and say so by EINVAL.
  EK_CHECK(failure == 0 || failure == EINVAL, kIo, folder.string(), ": cannot be flushed: ", os_error_text(failure));
}

void check_writable_folder(const fs::path& folder) {
  EK_CHECK(::access(folder.c_str(), W_OK | X_OK) == 0, kIo, folder.string(), ": not writable: ", os_error_text(errno));
}

fs::path temporary_folder(std::string_view advice) {
  const char* given = std::getenv("TMPDIR");
  const fs::path folder = given == nullptr || *given == '\0' ? "/tmp" : given;
  const auto who = folder == "/tmp" ? std::string("the temporary folder") : std::string("TMPDIR");
  std::error_code error;
  EK_CHECK(fs::is_directory(folder, error), kIo, who, " is ", folder.string(), ", which is no folder; ", advice);
  EK_CHECK(::access(folder.c_str(), W_OK | X_OK) == 0, kIo, who, " is ", folder.string(),
           ", which cannot be written: ", os_error_text(errno), "; ", advice);
  return folder;
}

fs::path temporary_path_for(const fs::path& file) {
  static std::atomic<unsigned> serial{0};
  return concat(file.string(), kPart, ::getpid(), "-", serial.fetch_add(1));
}

bool is_temporary_of(const fs::path& file, std::string_view written) {
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
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error == std::errc::no_such_file_or_directory || (!error && size <= static_cast<uintmax_t>(bytes))) return;
  if (!error) fs::resize_file(file, static_cast<uintmax_t>(bytes), error);
  EK_CHECK(!error, kIo, file.string(), ": cannot be cut to ", bytes, " bytes: ", os_error_text(error.value()));
}

}  // namespace evenkeel
