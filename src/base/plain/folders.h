/// \file  What is in a folder, and on disk: new folders, and what a killed process leaves in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace evenkeel {

namespace fs = std::filesystem;

/// What was made, renamed or removed in `folder` is on disk when it returns.
void flush_folder(const fs::path& folder);

/// Whether `file` is what a killed process left of an atomic write (base/plain/files.h) of `written`, a file of the
/// same folder: "<written>.part-<process>-<number>".
bool is_part_of(const fs::path& file, std::string_view written);

/// Cuts a file that is longer than `bytes`; one that is not there stays so.
void shorten_file(const fs::path& file, int64_t bytes);

}  // namespace evenkeel
