#include "fed/store/moved_rows.h"

#include "base/plain/data_path.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kRows = run_file("rows");

void move_all(const fs::path& folder, Json& paths) {
  for (auto& path : paths) path.is_string() ? void(path = place_now(folder, path)) : move_all(folder, path);
}

/// Returns the position of the quotation mark that opens the text around `at`. Marks within a text follow a backslash.
size_t begin_of_text(std::string_view toml, size_t at) {
  size_t begin = toml.rfind('"', at);
  while (begin != toml.npos && begin > 0 && toml[begin - 1] == '\\') begin = toml.rfind('"', begin - 1);
  EK_CHECK(begin != toml.npos, kCheckpoint, "config.toml: a path of rows/ is no text in double quotes");
  return begin;
}

}  // namespace

std::string place_now(const fs::path& folder, const std::string& path) {
  const fs::path then = path;
  if (then.parent_path().filename() != kRows || path_exists(then)) return path;
  const auto now = folder / kRows / then.filename();
  return path_exists(now) ? absolute_path(now) : path;
}

std::string config_text_now(const fs::path& folder, std::string text) {
  if (!is_folder(folder / kRows)) return text;
  for (const auto& file : entries_of(folder / kRows)) {
    const auto end = concat('/', kRows, '/', file.filename().string(), '"');
    for (size_t at = text.find(end); at != text.npos; at = text.find(end, at + 1)) {
      const size_t begin = begin_of_text(text, at), length = at + end.size() - begin;
      const auto now =
          Json(place_now(folder, parse_json<Json>(text.substr(begin, length), "config.toml", kCheckpoint))).dump();
      text.replace(begin, length, now);
      at = begin + now.size() - 1;
    }
  }
  return text;
}

Json partition_now(const fs::path& folder, Json partition) {
  for (const auto* key : {"files", "client_files"})
    if (partition.contains(key)) move_all(folder, partition[key]);
  return partition;
}

}  // namespace evenkeel::fed
