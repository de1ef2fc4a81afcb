#include "apps/output_paths.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/os_error.h"
#include "fed/run/new_run_folder.h"
#include "fed/store/run_files.h"
#include "study/definition/run_claims.h"
#include "study/definition/study_state.h"

namespace evenkeel::apps {
namespace {

/// Checks that the path is writable. \param why  start of the error message
void check_writable(std::string_view flag, const fs::path& file, const fs::path& path, std::string_view why) {
  EK_CHECK(::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0, kIo, flag, " is ", file.string(),
           ", which cannot be written: ", why, os_error_text(errno));
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

void check_place(std::string_view flag, const fs::path& file) {
  check_output_text(flag, file.string());
  const auto folder = folder_of(file);
  EK_CHECK(is_folder(folder), kIo, flag, " is ", file.string(), ", which cannot be written: ", folder.string(),
           " is not a folder");
  EK_CHECK(file.has_filename() && !is_folder(file), kIo, flag, " is ", file.string(),
           ", which cannot be written: it is a folder");
}

/// Returns what keeps a file or folder of this name in the folder: a run, a study, or nothing.
std::string_view keeper(const fs::path& folder, const std::string& name) {
  if (fed::is_run_file(name) && fed::holds_run(folder)) return "run";
  constexpr std::array kOfStudies = {study::kStateFile, study::kStudyFile, study::kBaseFile, fed::run_file("rows")};
  const bool of_study = std::find(kOfStudies.begin(), kOfStudies.end(), name) != kOfStudies.end() ||
                        FolderLock::is_lock(name) || study::RunClaims::is_claim(name);
  const bool of_arm = name == study::kArmFile && study::holds_study(folder.parent_path());
  return of_arm || (of_study && study::holds_study(folder)) ? "study" : "";
}

}  // namespace

void check_output_text(std::string_view flag, std::string_view file) {
  check_path_text(file, flag);
  EK_CHECK(file != "-", kConfig, flag,
           " is -, which is standard output elsewhere: name a file, ./- for one of that name");
}

void check_not_kept(std::string_view flag, const fs::path& output) {
  auto path = without_trailing_slash(link_target(output));
  for (auto folder = path.parent_path(); folder != path; path = folder, folder = path.parent_path()) {
    const auto whose = keeper(folder, path.filename().string());
    EK_CHECK(whose.empty(), kIo, flag, " is ", output.string(), ", which the ", whose, " in ", folder.string(),
             " reads or keeps: choose another path");
  }
}

void check_output_file(std::string_view flag, const fs::path& file) {
  check_place(flag, file);
  if (path_exists(file))
    check_writable(flag, file, file, "");
  else
    check_writable(flag, file, folder_of(file), concat(folder_of(file).string(), ": "));
  check_not_kept(flag, file);
}

void check_replaced_file(std::string_view flag, const fs::path& file) {
  check_place(flag, file);
  EK_CHECK(!path_exists(file) || is_file(file), kIo, flag, " is ", file.string(),
           ", which cannot be written: it is there and is no file");
  check_writable(flag, file, folder_of(file), concat(folder_of(file).string(), ": "));
  check_not_kept(flag, file);
}

void check_output_folder(std::string_view flag, const fs::path& folder) {
  check_path_text(folder.string(), flag);
  auto first = fs::absolute(folder);
  while (!path_exists(first)) first = first.parent_path();
  EK_CHECK(is_folder(first), kIo, flag, " is ", folder.string(), ", which cannot be written: ", first.string(),
           " is not a folder");
  check_writable(flag, folder, first, concat(first.string(), ": "));
  check_not_kept(flag, folder);
}

void check_apart(std::string_view flag, const fs::path& file, std::span<const fs::path> inputs) {
  for (const auto& input : inputs) {
    std::error_code missing;
    EK_CHECK(!fs::equivalent(file, input, missing), kIo, flag, " is ", file.string(),
             ", which this command reads or keeps (", input.string(), "): choose another file");
  }
}

void check_two_files(std::string_view flag, const fs::path& file, std::string_view other_flag, const fs::path& other) {
  std::error_code missing;
  EK_CHECK(link_target(file) != link_target(other) && !fs::equivalent(file, other, missing), kConfig, flag, " and ",
           other_flag, " are both ", file.string(), ": they are two files");
}

NewFolders::NewFolders(const fs::path& folder) {
  std::error_code error;
  for (auto path = fs::absolute(folder, error); !error && !path.empty() && !fs::exists(path, error) && !error;
       path = path.parent_path())
    missing_.push_back(path);
}

NewFolders::~NewFolders() {
  for (const auto& folder : missing_) ::rmdir(folder.c_str());  // fails for folders with content
}

}  // namespace evenkeel::apps
