#include "fed/store/moved_rows.h"

#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "fed/config/config_paths.h"
#include "fed/config/study_of_run.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kRows = run_file("rows");

void move_all(const fs::path& folder, Json& paths) {
  for (auto& path : paths) path.is_string() ? void(path = place_now(folder, path)) : move_all(folder, path);
}

}  // namespace

std::string place_now(const fs::path& folder, const std::string& path) {
  const fs::path then = path;
  if (then.parent_path().filename() != kRows || path_exists(then)) return path;
  for (const auto& home : {folder, study_of_run(folder)}) {
    const auto now = home / kRows / then.filename();
    if (path_exists(now)) return absolute_path(now);
  }
  return path;
}

void find_moved_rows(ExperimentConfig& config, const fs::path& folder) {
  for (const auto& key : path_keys(config)) {
    if (key.path) *key.path = place_now(folder, *key.path);
    if (key.paths)
      for (auto& path : *key.paths) path = place_now(folder, path);
  }
}

Json partition_now(const fs::path& folder, Json partition) {
  for (const auto* key : {"files", "client_files"})
    if (partition.contains(key)) move_all(folder, partition[key]);
  return partition;
}

}  // namespace evenkeel::fed
