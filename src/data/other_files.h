/// \file  Recognises files that hold rows in another form than JSON or JSON lines: tables, archives, databases, folders
/// of the package datasets. The errors say what the file is, with a line of Python that converts it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/plain/json.h"

namespace evenkeel::data {

/// Checks that the bytes of a file are not a compressed file, an archive, a table (Parquet, Arrow, CSV, Excel, ...), a
/// database, a pickle, or text in UTF-16. \throws kData naming the file, what it is, and how to convert it
void check_is_json_text(std::string_view bytes, const std::string& file);

/// Checks that a JSON value is not a whole table: columns by name, as pandas' to_json() writes them, lists by name, or
/// rows that are lists. \throws kData naming the file, what it is, and how to convert it
void check_is_not_table(const Json& whole, const std::string& file);

/// Refuses a folder in the place of a file. \throws kData naming what the folder holds, and how to convert it
[[noreturn]] void refuse_folder(const std::filesystem::path& folder);

/// Returns true for a folder that save_to_disk() of the package datasets wrote.
bool is_saved_dataset(const std::filesystem::path& folder);

}  // namespace evenkeel::data
