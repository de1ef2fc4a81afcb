/// \file  Folders and files of a test's own: several test programs may run at once. Memory of its own, freed.
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

/// The folder of data that is no part of the project, which $EVENKEEL_DATA names; without it one that is not there, so
/// that tests skip and say so.
inline fs::path data_folder() {
  const char* given = std::getenv("EVENKEEL_DATA");
  return given ? given : "$EVENKEEL_DATA";
}

/// A new empty folder of a name that no other process has, removed with all it holds when the object goes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "evenkeel-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder like " + pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // a destructor does not throw; what is left lies in the temporary folder
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// A file with a content, in a folder of its own. Example:  load_json(TemporaryFile("[1]").path())
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

/// Kibibytes of mapped files of a folder that are in this process' memory.
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

/// 128 MiB that were freed and stay with the process by themselves: something above them is kept.
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
  /// Whether it was glibc's allocator: sanitizers bring another.
  bool is_glibcs() const { return is_glibcs_; }
  /// Whether the system has most of it again.
  bool went_back() const { return resident() < resident_ - static_cast<int64_t>(kPiece * kPieces / 2); }

 private:
  static constexpr size_t kPiece = size_t{1} << 16, kPieces = size_t{1} << 11;

  /// Bytes of this process.
  static int64_t resident() {
    int64_t total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * ::sysconf(_SC_PAGESIZE);
  }

  std::vector<char> kept_;
  int64_t resident_ = 0;
  bool is_glibcs_ = false;
};

/// What the Error says that `use` throws; "no error" where it throws none.
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
