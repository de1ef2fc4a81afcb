/// \file  Flushes folders, recognises temporary files of atomic writes, and truncates files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace evenkeel {

namespace fs = std::filesystem;

/// Flushes the entries of `folder` to disk, so that files that were created, renamed or removed there stay so after a
/// power failure. Does nothing on file systems that cannot flush a folder. \throws kIo when the folder cannot be opened
/// or flushed.
void flush_folder(const fs::path& folder);

/// Returns true when `file` has the name of a temporary file of an atomic write (base/plain/files.h) of `written`:
/// "<written>.part-<process>-<number>". A killed process leaves such files. Only names are compared.
/// \param written  a file name in the same folder, without its path
bool is_temporary_of(const fs::path& file, std::string_view written);

/// Truncates a file to `bytes` bytes. Does nothing when the file is missing or not longer. \throws kIo when the file
/// cannot be truncated.
void shorten_file(const fs::path& file, int64_t bytes);

}  // namespace evenkeel
