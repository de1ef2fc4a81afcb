/// \file  Checks the paths that a command will write to, before it does any work. A command that fails these checks has
/// created and changed nothing.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace evenkeel::apps {

/// Checks the text of the path of an output file. \throws kConfig for "-" and as check_path_text()
void check_output_text(std::string_view flag, std::string_view file);

/// Checks that the place of a file or folder is none where a run (fed/store/run_files.h) or study keeps one, whether or
/// not it is there. The other checks of single outputs include this one.
/// \param flag  the flag that names it, for messages
/// \throws kIo naming the run or study
void check_not_kept(std::string_view flag, const std::filesystem::path& output);

/// Checks a file that a command will open and write to. It may exist, also as a device or a pipe.
/// \param flag  the flag that names it, for messages
/// \throws kIo when the file's folder does not exist, the file is a folder, cannot be written, or has the place of a
/// file of a run (fed/store/run_files.h) or study; kConfig as check_output_text()
void check_output_file(std::string_view flag, const std::filesystem::path& file);

/// Checks a file that a command will write under a temporary name and then rename (base/plain/files.h). If it exists,
/// it must be a regular file. \throws as check_output_file()
void check_replaced_file(std::string_view flag, const std::filesystem::path& file);

/// Checks a folder that a command will write into, and create if it does not exist.
/// \throws kIo when it is a file, or when it, or its nearest existing parent folder, cannot be written to; kIo as
/// check_not_kept(); kConfig as check_path_text()
void check_output_folder(std::string_view flag, const std::filesystem::path& folder);

/// Checks that an output is none of the files that the command reads. Files are compared by device and inode, so a link
/// to an input is an error too.
/// \throws kIo naming both
void check_apart(std::string_view flag, const std::filesystem::path& file,
                 std::span<const std::filesystem::path> inputs);

/// Checks that two outputs are not the same file, whether or not they exist.
/// \throws kConfig naming both flags
void check_two_files(std::string_view flag, const std::filesystem::path& file, std::string_view other_flag,
                     const std::filesystem::path& other);

/// Removes the empty folders that a failed command leaves. The constructor records which folders of a path do not
/// exist. The destructor removes those of them that exist and are empty.
/// Example:  const NewFolders folders(flags.out);
class NewFolders {
 public:
  /// \param folder  the path, of which this and all parent folders are recorded
  explicit NewFolders(const std::filesystem::path& folder);
  ~NewFolders();
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<std::filesystem::path> missing_;  // the deepest first
};

}  // namespace evenkeel::apps
