#include "data/row_files.h"

#include <glob.h>

#include <algorithm>
#include <iterator>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "data/file_identity.h"
#include "data/other_files.h"

namespace evenkeel::data {
namespace {

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != pattern.npos; }

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    if (is_file(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  EK_CHECK(status == 0 || status == GLOB_NOMATCH, kIo, pattern, ": cannot be searched for");
  EK_CHECK(!files.empty(), kData, pattern, " matches no file");
  std::sort(files.begin(), files.end());  // sorts by bytes, because the library's order depends on the locale
  return files;
}

}  // namespace

void append(TaskRows part, TaskRows& all) {
  std::move(part.rows.begin(), part.rows.end(), std::back_inserter(all.rows));
  all.files.insert(all.files.end(), part.files.begin(), part.files.end());
  all.left_out += part.left_out;
  std::move(part.held_out.begin(), part.held_out.end(), std::back_inserter(all.held_out));
  for (const auto member : {&TaskRows::note, &TaskRows::read})
    if (!(part.*member).empty()) all.*member += concat((all.*member).empty() ? "" : "; ", part.*member);
}

std::vector<std::string> found_files(std::span<const std::string> patterns) {
  std::vector<std::string> all;
  KnownFiles known;
  for (const auto& pattern : patterns) {
    check_path_text(pattern, "a file of rows");
    const bool as_it_is = !is_glob(pattern) || path_exists(pattern);
    EK_CHECK(!as_it_is || path_exists(pattern), kIo, pattern, " is not there");
    if (as_it_is && is_folder(pattern)) refuse_folder(pattern);
    EK_CHECK(!as_it_is || is_file(pattern), kData, pattern,
             " is a pipe or a device, allowed: files of rows, which are ", "read more than once");
    for (auto& file : as_it_is ? std::vector{pattern} : matches(pattern))
      if (known.add(file)) all.push_back(std::move(file));
  }
  return all;
}

std::vector<std::string> with_files_of_folders(std::span<const std::string> paths) {
  std::vector<std::string> all;
  for (const auto& path : paths) {
    check_path_text(path, "a file of rows");
    if (!is_folder(path)) {
      all.push_back(path);
      continue;
    }
    if (is_saved_dataset(path)) refuse_folder(path);
    const size_t before = all.size();
    const auto entries = entries_of(path);
    for (const auto* extension : {".jsonl", ".json"})
      for (const auto& entry : entries)
        if (entry.extension() == extension && is_file(entry)) all.push_back(entry.string());
    if (all.size() == before) refuse_folder(path);
  }
  return all;
}

}  // namespace evenkeel::data
