/// \file  Reads, hashes and writes files, and creates folders. Most writes are atomic: readers see the old content or
/// the new. append_line() is not. Does not depend on LibTorch. Memory mappings are in base/plain/mapped_files.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/descriptor.h"

namespace evenkeel {

class Error;  // base/plain/error.h

namespace fs = std::filesystem;

/// The next four functions query a path and follow links.
/// \throws kIo naming the path when the system cannot answer: a circular link, a name that is too long, a folder
/// without search permission. file_size() also throws when the file is missing.
bool path_exists(const fs::path& path);
bool is_folder(const fs::path& path);      ///< false when the path does not exist
bool is_file(const fs::path& path);        ///< true for a regular file, false when the path does not exist
uint64_t file_size(const fs::path& file);  ///< in bytes

/// Returns the paths of a folder's entries, sorted by name. Does not descend into subfolders. \throws kIo when the
/// folder cannot be listed.
std::vector<fs::path> entries_of(const fs::path& folder);

/// As entries_of(), but returns none when the folder is missing or another process removes it during the call.
std::vector<fs::path> entries_if_there(const fs::path& folder);

/// Creates a folder and its missing parents, and flushes each new entry to disk. Does nothing when the folder exists.
/// \throws kIo when a folder cannot be created.
void make_folders(const fs::path& folder);

/// Removes a file, or a folder with its whole content. Does nothing when the path does not exist. \throws kIo when an
/// entry cannot be removed.
void remove_path(const fs::path& path);

/// Checks the text of a path before it is used. \throws kConfig when the path is empty, not UTF-8 or has control
/// characters.
/// \param who  the flag or key that the path came from, for the message
void check_path_text(std::string_view path, std::string_view who);

/// Returns the whole content of a file, which may be a pipe or a file of /proc. Where a file reports its size, the
/// string takes no more memory than that. \throws kIo naming the file when it cannot be read or is longer than `most`
/// bytes.
std::string read_file(const fs::path& file, size_t most = size_t{1} << 32);

/// Writes a file that appears whole or not at all. write() appends to a temporary file in the same folder. commit()
/// flushes the temporary file to disk and renames it to its final name. Without commit() or place() the destructor
/// removes the temporary file, and an old file of that name stays unchanged.
/// Example:  AtomicFile out(path);  out.write(header);  out.write(body);  out.commit();
class AtomicFile {
 public:
  /// Creates the temporary file. \throws kIo when the folder is missing or not writable.
  explicit AtomicFile(fs::path file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  /// Appends bytes to the temporary file. \throws kIo naming the file, e.g. when the disk is full.
  void write(std::string_view bytes);
  /// Writes bytes at a place of the temporary file, which grows as needed. Several threads may write at different
  /// places at once. \throws kIo as write()
  void write_at(int64_t offset, std::string_view bytes);
  /// Flushes the temporary file to disk, renames it, and flushes the folder.
  /// \throws kIo. If the first flush or the rename fails, the old file is unchanged. If only the folder cannot be
  /// flushed, the new file is already in place.
  void commit();
  /// Renames the temporary file into place without fsync. Other processes see the new content at once. The content
  /// survives a power failure only after flush_files() was called with this path; until then the file may hold
  /// anything. Use it only for files whose readers verify a checksum. \throws kIo when the rename fails.
  void place();

 private:
  fs::path file_, temporary_;
  Descriptor descriptor_;
};

/// Flushes files that AtomicFile::place() renamed, and their folders, to disk. One call for many files is faster than
/// one call per file, because all writes are started before the first one is awaited. All files are open during the
/// call, so their number must be below the system's limit of open files (usually 1,024). \throws kIo naming the file.
void flush_files(std::span<const fs::path> files);

/// Writes a file atomically: to a temporary file, which is flushed to disk and renamed. \throws kIo as
/// AtomicFile::commit().
void write_file_atomic(const fs::path& file, std::string_view bytes);

/// Writes the pieces one after another as write_file_atomic() does, without joining them in memory first.
void write_file_atomic(const fs::path& file, std::span<const std::string_view> pieces);

/// Returns true when `error` reports a full disk or an exceeded disk quota (ENOSPC, EDQUOT).
bool is_full_disk(const Error& error);

/// Appends `line` and a line break to a file, and flushes the file to disk. Creates the file when it is missing. The
/// append is not atomic: a killed process may leave the beginning of a line. The next call removes everything after the
/// last line break before it appends. REQUIRES that no other process appends. \throws kIo naming the file.
void append_line(const fs::path& file, std::string_view line);

/// Checks that an output folder does not exist, or is empty. \throws kIo when it has content or is a file; kConfig when
/// check_path_text() refuses the path.
void check_new_folder(const fs::path& folder);

/// Creates an output folder and its missing parents; an empty folder may exist already. \throws kIo when the folder has
/// content, or cannot be created or written to; kConfig when check_path_text() refuses the path.
void make_new_folder(const fs::path& folder);

/// Returns the SHA-256 of a file as 64 hex digits. Reads the file in blocks of 1 MiB. \throws kIo naming the file when
/// it cannot be read or is not a regular file.
std::string sha256_file(const fs::path& file);
/// Returns the SHA-256 of bytes in memory as 64 hex digits.
std::string sha256(std::string_view bytes);

/// Returns the folder of the files that are shipped with the program (assets/, configs/): the first of these that has a
/// folder `configs`: `share/evenkeel` of the installation, `_share` of the Python package, the source tree of the
/// build.
/// \throws kIo when none has it.
fs::path shipped_folder();

/// Returns the version of the program, e.g. "0.1.0".
std::string_view version();

}  // namespace evenkeel
