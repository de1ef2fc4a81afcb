/// \file  Checks the paths that a command writes to before it does any work. A refused command has created and changed
/// nothing.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace evenkeel::apps {

/// Checks a file that a command will open and write to. A device or a pipe may be there already.
/// \param flag  the flag that names it, for messages
/// \throws kIo when the file's folder does not exist, or the file is a folder or cannot be written; kConfig as
/// check_path_text()
void check_output_file(std::string_view flag, const std::filesystem::path& file);

/// The same for a file that appears as a whole under its name (base/plain/files.h). What is there already must be a
/// file.
void check_replaced_file(std::string_view flag, const std::filesystem::path& file);

/// Checks a folder that a command will write into, and make if it is not there.
/// \throws kIo when it is a file, or when it or the first of its folders that exists cannot be written to
void check_output_folder(std::string_view flag, const std::filesystem::path& folder);

/// Checks that an output is none of the files that the command reads. Files are compared by device and inode, so links
/// count.
/// \throws kIo naming both
void check_apart(std::string_view flag, const std::filesystem::path& file,
                 std::span<const std::filesystem::path> inputs);

/// Checks that two outputs are two files, whether or not they exist.
/// \throws kConfig naming both flags
void check_two_files(std::string_view flag, const std::filesystem::path& file, std::string_view other_flag,
                     const std::filesystem::path& other);

/// Remembers which folders on the way to an output do not exist. Its destructor removes those of them that are empty
/// by then, so that a command that fails leaves no folders.
/// Example:  const NewFolders folders(flags.out);
class NewFolders {
 public:
  /// \param folder  the last of the folders
  explicit NewFolders(const std::filesystem::path& folder);
  ~NewFolders();
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<std::filesystem::path> missing_;  // the deepest first
};

}  // namespace evenkeel::apps
