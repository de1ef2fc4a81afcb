#include "base/plain/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "base/plain/dead_parts.h"
#include "base/plain/error.h"
#include "base/plain/folders.h"
#include "base/plain/os_error.h"
#include "base/plain/sha256.h"
#include "base/plain/text.h"

namespace evenkeel {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

/// \param written  the result of write_all(); when it is false, errno says why
void check_file_written(bool written, const fs::path& file) {
  EK_CHECK(written, kIo, file.string(), ": cannot be written: ", os_error_text(errno));
}

size_t read_some(int descriptor, char* into, size_t capacity, const fs::path& file) {
  while (true) {
    const ssize_t done = ::read(descriptor, into, capacity);
    if (done < 0 && errno == EINTR) continue;
    EK_CHECK(done >= 0, kIo, file.string(), ": cannot be read: ", os_error_text(errno));
    return done;
  }
}

struct stat details_of(int descriptor, const fs::path& file) {
  struct stat status = {};
  EK_CHECK(::fstat(descriptor, &status) == 0, kIo, file.string(), ": ", os_error_text(errno));
  return status;
}

fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  const bool absent = status.type() == fs::file_type::not_found;
  EK_CHECK(!error || absent, kIo, path.string(), ": cannot be looked at: ", os_error_text(error.value()));
  return status;
}

/// Returns a folder's entries, sorted; `error` says why they are not all of them.
std::vector<fs::path> listed(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

bool path_exists(const fs::path& path) { return fs::exists(status_of(path)); }
bool is_folder(const fs::path& path) { return fs::is_directory(status_of(path)); }
bool is_file(const fs::path& path) { return fs::is_regular_file(status_of(path)); }

uint64_t file_size(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  EK_CHECK(!error, kIo, file.string(), ": has no size: ", os_error_text(error.value()));
  return size;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  auto entries = listed(folder, error);
  EK_CHECK(!error, kIo, folder.string(), ": cannot be listed: ", os_error_text(error.value()));
  return entries;
}

std::vector<fs::path> entries_if_there(const fs::path& folder) {
  std::error_code error;
  auto entries = listed(folder, error);
  if (error == std::errc::no_such_file_or_directory) return {};
  EK_CHECK(!error, kIo, folder.string(), ": cannot be listed: ", os_error_text(error.value()));
  return entries;
}

void make_folders(const fs::path& folder) {
  if (is_folder(folder)) return;
  const auto parent = folder.parent_path();
  if (!parent.empty() && parent != folder) make_folders(parent);
  std::error_code error;
  const bool made = fs::create_directory(folder, error);
  EK_CHECK(!error, kIo, folder.string(), ": cannot be made: ", os_error_text(error.value()));
  if (made) flush_folder(parent);
}

void remove_path(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  EK_CHECK(!error, kIo, path.string(), ": cannot be removed: ", os_error_text(error.value()));
}

void check_path_text(std::string_view path, std::string_view who) {
  EK_CHECK(!path.empty(), kConfig, who, " is empty, expected a path");
  EK_CHECK(is_utf8(path) && escaped(path) == path, kConfig, who, " is ", shown(path),
           ", allowed: a path of UTF-8 without control characters");
}

namespace {

/// Reads `size` bytes, or fewer where the file ends. \return how many
size_t read_until_end(int descriptor, char* into, size_t size, const fs::path& file) {
  size_t length = 0;
  while (length < size) {
    const size_t done = read_some(descriptor, into + length, size - length, file);
    if (done == 0) break;
    length += done;
  }
  return length;
}

/// Appends what follows: of pipes and files of /proc, which report size 0, and of a file that grew while it was read.
/// The end is looked for in memory of its own, because a string that grows by a byte may double.
void append_rest(int descriptor, const fs::path& file, size_t most, std::string& bytes) {
  std::array<char, size_t{1} << 16> block;
  while (const size_t done = read_some(descriptor, block.data(), block.size(), file)) {
    EK_CHECK(bytes.size() + done <= most, kIo, file.string(), ": longer than ", most,
             " bytes, the most that is read of it");
    bytes.append(block.data(), done);
  }
}

}  // namespace

std::string read_file(const fs::path& file, size_t most) {
  const auto descriptor = open_file(file, O_RDONLY);
  const auto status = details_of(descriptor.get(), file);
  EK_CHECK(!S_ISDIR(status.st_mode), kIo, file.string(), ": not a file");
  EK_CHECK(static_cast<size_t>(status.st_size) <= most, kIo, file.string(), ": ", status.st_size,
           " bytes, the most that is read of it is ", most);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  bytes.resize(read_until_end(descriptor.get(), bytes.data(), bytes.size(), file));
  append_rest(descriptor.get(), file, most, bytes);
  return bytes;
}

AtomicFile::AtomicFile(fs::path file) : file_(std::move(file)) {
  while (true) {
    temporary_ = temporary_path_for(file_);
    descriptor_ = try_open(temporary_, O_WRONLY | O_CREAT | O_EXCL);
    EK_CHECK(descriptor_.is_open() || errno == EEXIST, kIo, file_.string(),
             ": cannot be written: ", os_error_text(errno));
    if (descriptor_.is_open() && lock_part(temporary_, descriptor_.get())) return;
    descriptor_.close();
  }
}

AtomicFile::~AtomicFile() {
  if (!descriptor_.is_open()) return;
  descriptor_.close();
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) { check_file_written(write_all(descriptor_.get(), bytes), file_); }

void AtomicFile::write_at(int64_t offset, std::string_view bytes) {
  check_file_written(write_all_at(descriptor_.get(), offset, bytes), file_);
}

void AtomicFile::commit() {
  EK_CHECK(::fsync(descriptor_.get()) == 0, kIo, file_.string(), ": cannot be flushed: ", os_error_text(errno));
  place();
  flush_folder(file_.parent_path());
}

void AtomicFile::place() {
  EK_CHECK(::rename(temporary_.c_str(), file_.c_str()) == 0, kIo, file_.string(),
           ": cannot be replaced: ", os_error_text(errno));
  descriptor_.close();
}

void flush_files(std::span<const fs::path> files) {
  std::set<fs::path> folders;
  std::vector<Descriptor> open;
  for (const auto& file : files) {
    open.push_back(open_file(file, O_RDONLY));
    // Starts writing; on failure fsync writes everything.
    ::sync_file_range(open.back().get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    folders.insert(file.parent_path());
  }
  for (size_t i = 0; i < files.size(); ++i)
    EK_CHECK(::fsync(open[i].get()) == 0, kIo, files[i].string(), ": cannot be flushed: ", os_error_text(errno));
  for (const auto& folder : folders) flush_folder(folder);
}

void write_file_atomic(const fs::path& file, std::string_view bytes) {
  write_file_atomic(file, std::span<const std::string_view>(&bytes, 1));
}

void write_file_atomic(const fs::path& file, std::span<const std::string_view> pieces) {
  AtomicFile out(file);
  for (const auto piece : pieces) out.write(piece);
  out.commit();
}

bool is_full_disk(const Error& error) {
  const std::string_view text = error.what();
  return error.kind() == kIo &&
         (text.find(std::strerror(ENOSPC)) != text.npos || text.find(std::strerror(EDQUOT)) != text.npos);
}

namespace {

/// Returns the length of the whole lines among the first `size` bytes of a file. Reads backwards from there.
off_t length_of_lines(int descriptor, off_t size, const fs::path& file) {
  std::array<char, 4096> block{};
  for (off_t end = size; end > 0;) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(block.size()));
    const auto length = static_cast<size_t>(end - begin);
    const int64_t done = read_at(descriptor, begin, std::span(block).first(length));
    EK_CHECK(done == static_cast<int64_t>(length), kIo, file.string(),
             ": cannot be read: ", os_error_text(done < 0 ? errno : EIO));
    const size_t line_break = std::string_view(block.data(), length).rfind('\n');
    if (line_break != std::string_view::npos) return begin + static_cast<off_t>(line_break) + 1;
    end = begin;
  }
  return 0;
}

/// Removes everything after the last line break of a file.
void remove_incomplete_line(int descriptor, const fs::path& file) {
  const off_t size = details_of(descriptor, file).st_size, whole = length_of_lines(descriptor, size, file);
  EK_CHECK(whole == size || ::ftruncate(descriptor, whole) == 0, kIo, file.string(),
           ": cannot be cut to its whole lines: ", os_error_text(errno));
}

}  // namespace

void append_line(const fs::path& file, std::string_view line) {
  std::error_code error;
  const bool is_new = !fs::exists(file, error);
  const auto descriptor = open_file(file, O_RDWR | O_CREAT | O_APPEND);
  remove_incomplete_line(descriptor.get(), file);
  check_file_written(write_all(descriptor.get(), concat(line, '\n')), file);
  EK_CHECK(::fsync(descriptor.get()) == 0, kIo, file.string(), ": cannot be flushed: ", os_error_text(errno));
  if (is_new) flush_folder(file.parent_path());
}

void check_new_folder(const fs::path& folder) {
  check_path_text(folder.string(), "the output folder");
  if (!path_exists(folder)) return;
  EK_CHECK(is_folder(folder), kIo, folder.string(), ": exists and is not a folder");
  EK_CHECK(entries_of(folder).empty(), kIo, folder.string(), ": exists already and is not empty; choose another --out");
}

void make_new_folder(const fs::path& folder) {
  check_new_folder(folder);
  make_folders(folder);
  check_writable_folder(folder);
}

std::string sha256_file(const fs::path& file) {
  const auto descriptor = open_file(file, O_RDONLY | O_NONBLOCK);  // opening a pipe would wait for a writer
  EK_CHECK(S_ISREG(details_of(descriptor.get(), file).st_mode), kIo, file.string(), ": not a file");
  Sha256 digest;
  std::string block(kBlock, '\0');
  while (const size_t length = read_some(descriptor.get(), block.data(), block.size(), file))
    digest.update(std::string_view(block).substr(0, length));
  return digest.hex();
}

std::string sha256(std::string_view bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.hex();
}

namespace {
/// Returns the possible folders of shipped files: of `cmake --install`, of the Python wheel, and of a build folder.
std::vector<fs::path> shipped_candidates() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  return {prefix / "share" / "evenkeel", prefix / "_share", EVENKEEL_SOURCE_DIR};
}
}  // namespace

fs::path shipped_folder() {
  const auto candidates = shipped_candidates();
  const auto found =
      std::ranges::find_if(candidates, [](const fs::path& folder) { return is_folder(folder / "configs"); });
  EK_CHECK(found != candidates.end(), kIo, "what evenkeel ships is neither in ", candidates[0].string(), " nor in ",
           candidates[1].string(), " nor in ", candidates[2].string());
  return *found;
}

std::string_view version() { return EVENKEEL_VERSION; }

}  // namespace evenkeel
