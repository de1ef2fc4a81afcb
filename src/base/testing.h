/// \file  Helpers of tests: temporary folders and files that are unique, so that several test programs may run at once,
/// and probes of the process' memory.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::testing {

/// Returns the folder of external test data, $EVENKEEL_DATA. If the variable is not set, the returned path does not
/// exist, and tests that need it are skipped with a message.
inline fs::path data_folder() {
  const char* given = std::getenv("EVENKEEL_DATA");
  return given ? given : "$EVENKEEL_DATA";
}

/// Creates a new empty folder with a unique name. The destructor removes it with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "evenkeel-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder like " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // a destructor does not throw; leftovers stay in the temporary folder
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Creates a file with the given content in a temporary folder of its own. Example:
/// load_json(TemporaryFile("[1]").path())
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content, std::string_view name = "file.json") : path_(folder_.path() / name) {
    write_file_atomic(path_, content);
  }
  const fs::path& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  fs::path path_;
};

/// Returns how many KiB of mapped files of `folder` are resident in this process.
inline int64_t resident_kib(const fs::path& folder) {
  std::ifstream maps("/proc/self/smaps");
  int64_t kib = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);)
    if (line.find(folder.string()) != std::string::npos)
      ours = true;
    else if (ours && line.starts_with("Rss:"))
      kib += std::stoll(line.substr(4)), ours = false;
  return kib;
}

/// Allocates 128 MiB in pieces and frees all but the last one. The freed memory stays with the process, because the
/// kept piece has the highest address.
class FreedMemory {
 public:
  FreedMemory() {
    std::vector<std::vector<char>> pieces;
    for (size_t i = 0; i <= kPieces; ++i) pieces.emplace_back(kPiece, 'x');
#if defined(__GLIBC__)
    is_glibcs_ = ::mallinfo2().uordblks > kPiece * kPieces;
#endif
    kept_ = std::move(pieces.back());
    pieces.clear();
    resident_ = resident();
  }
  /// Returns true when glibc's allocator served the memory. Sanitizers bring another allocator.
  bool is_glibcs() const { return is_glibcs_; }
  /// Returns true when more than half of the freed memory has left this process.
  bool went_back() const { return resident() < resident_ - static_cast<int64_t>(kPiece * kPieces / 2); }

 private:
  static constexpr size_t kPiece = size_t{1} << 16, kPieces = size_t{1} << 11;

  /// Returns the resident bytes of this process.
  static int64_t resident() {
    int64_t total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * ::sysconf(_SC_PAGESIZE);
  }

  std::vector<char> kept_;
  int64_t resident_ = 0;
  bool is_glibcs_ = false;
};

/// Calls `use` and returns the message of the Error that it throws, or "no error".
template <typename Use>
std::string refusal(Use&& use) {
  try {
    use();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace evenkeel::testing
