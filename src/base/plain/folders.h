/// \file  Flushes folders, recognises temporary files of atomic writes, and truncates files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace evenkeel {

namespace fs = std::filesystem;

/// Returns the absolute form of a path without parts "." and ".." and without a slash at the end, which a shell's
/// completion adds. Links are not followed.
fs::path without_trailing_slash(const fs::path& path);

/// Returns the folder that a file or folder lies in, absolute: of "runs/x/" that of "runs/x", of "." the one above the
/// working folder. Links are not followed.
fs::path parent_of(const fs::path& path);

/// Returns the absolute path that a link leads to, which may be missing; of another path, its absolute form. Links in
/// the parents are followed too.
fs::path link_target(fs::path path);

/// Flushes the entries of `folder` to disk, so that files that were created, renamed or removed there stay so after a
/// power failure. Does nothing on file systems that cannot flush a folder. \throws kIo when the folder cannot be opened
/// or flushed.
void flush_folder(const fs::path& folder);

/// Checks that files can be created in `folder`. \throws kIo naming it
void check_writable_folder(const fs::path& folder);

/// Returns the system's folder for temporary files: TMPDIR, or /tmp if that is not set.
/// \param advice  how to name another one, for the message, e.g. "cluster.scratch names another"
/// \throws kIo naming TMPDIR when it is no folder or cannot be written
fs::path temporary_folder(std::string_view advice);

/// Returns a name for a temporary file next to `file`, another one at each call: "<file>.part-<process>-<number>". A
/// file of that name may exist: a killed process, or a process on another machine, may have had the same id. Threads:
/// any.
fs::path temporary_path_for(const fs::path& file);

/// Returns true when `file` has the name of a temporary file of an atomic write (base/plain/files.h) of `written`:
/// "<written>.part-<process>-<number>". A killed process leaves such files. Only names are compared.
/// \param written  a file name in the same folder, without its path
bool is_temporary_of(const fs::path& file, std::string_view written);

/// Truncates a file to `bytes` bytes. Does nothing when the file is missing or not longer. \throws kIo when the file
/// cannot be truncated.
void shorten_file(const fs::path& file, int64_t bytes);

}  // namespace evenkeel
