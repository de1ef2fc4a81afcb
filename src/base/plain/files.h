/// \file  Reads, hashes and atomic writes of files, and folders that are made once. Knows nothing of torch.
/// Mapped files are in base/plain/mapped_files.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

class Error;  // base/plain/error.h

namespace fs = std::filesystem;

/// Questions about a path. Where the system cannot tell (a link that leads to itself, a name that is too long, a folder
/// that may not be entered) they \throw kIo naming the path; fs::exists and its like throw what no person can read.
bool path_exists(const fs::path& path);
bool is_folder(const fs::path& path);  ///< false when it is not there
bool is_file(const fs::path& path);    ///< a regular file; false when it is not there
uint64_t file_size(const fs::path& file);

/// What lies in a folder, by name. \throws kIo when it cannot be listed.
std::vector<fs::path> entries_of(const fs::path& folder);

/// Makes a folder with its parents; one that is there already is fine.
void make_folders(const fs::path& folder);

/// Removes a file, or a folder with all it holds; nothing there is fine.
void remove_path(const fs::path& path);

/// Refuses a path that no file of ours could hold: TOML and JSON are UTF-8, a message is one line.
/// \param who  the flag or key that it came from. \throws kConfig when it is empty, not UTF-8 or has control
/// characters.
void check_path_text(std::string_view path, std::string_view who);

/// Whole file as bytes. \throws kIo naming the file, when it cannot be read or is longer than `most` bytes.
std::string read_file(const fs::path& file, size_t most = size_t{1} << 32);

/// A file that appears whole or not at all: bytes go to a temporary neighbour; commit() flushes it to disk and renames
/// it. Without commit() the neighbour is removed and the old file stays as it was. Example:  AtomicFile out(path);
/// out.write(header);  out.write(body);  out.commit();
class AtomicFile {
 public:
  explicit AtomicFile(fs::path file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// \throws kIo (disk full, not writable) naming the file.
  void write(std::string_view bytes);
  void commit();
  /// In its place for every process, on disk with the flush_files() that names it. A machine that loses power before
  /// that may leave anything of it: for files whose readers find out.
  void place();

 private:
  fs::path file_, temporary_;
  int descriptor_ = -1;
};

/// Flushes files that were placed. Together they take a few of the disk's turns, and not a few each.
void flush_files(std::span<const fs::path> files);

/// Writes to a temporary neighbour, flushes it to disk, then renames: readers see the old content or the new, never a
/// part. \throws kIo (not writable, disk full); the old file is then untouched.
void write_file_atomic(const fs::path& file, std::string_view bytes);

/// Gathers pieces into one atomic write without joining them in memory first.
void write_file_atomic(const fs::path& file, std::span<const std::string_view> pieces);

/// Whether `error` is that there is no room on a disk, or none left of what one may use.
bool is_full_disk(const Error& error);

/// Appends one line and flushes it to disk.
void append_line(const fs::path& file, std::string_view line);

/// Makes an output folder with its parents. \throws kIo when it exists already with content, or cannot be made or
/// written to.
void make_new_folder(const fs::path& folder);

/// An output folder that appears whole or not at all: files go into path(), a neighbour named "<folder>.part"; commit()
/// renames it. Without commit() the neighbour is removed; what a killed process left in one is thrown away by the next.
/// Example:  AtomicFolder out("models/new");  write_file_atomic(out.path() / "config.json", text);  out.commit();
class AtomicFolder {
 public:
  /// \throws kIo when `folder` exists with content, cannot be made, is a mount point, or another process is writing it.
  explicit AtomicFolder(const fs::path& folder);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  const fs::path& path() const { return part_; }
  void commit();

 private:
  fs::path folder_, part_;
  int descriptor_ = -1;  // holds a lock, which dies with the process
};

/// Hex digest of a file, read in blocks.
std::string sha256_file(const fs::path& file);
std::string sha256(std::string_view bytes);

/// `path` with a leading "$EVENKEEL_DATA/" replaced by that environment variable.
/// \param key  who asked, for the message. \throws kConfig when the variable is not set.
fs::path expand_data_path(const std::string& path, std::string_view key);

/// Folder of what the project ships (assets/, configs/): the source tree it was built from, or `share/evenkeel` beside
/// the program's folder when installed. \throws kIo when neither is there.
fs::path shipped_folder();

/// Version of the program, e.g. "0.1.0".
std::string_view version();

}  // namespace evenkeel
