#include "models/weight_files.h"

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"

namespace evenkeel::models {
namespace {

// Returns the file name of a shard. It must be a plain name in the folder of the index, without a NUL byte, at which
// the operating system would end it.
const std::string& shard_of(const JsonView& entry) {
  const auto& name = entry.string();
  const bool plain =
      !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
  if (!plain || !is_utf8(name) || escaped(name) != name)
    entry.refuse(" is ", shown(entry.json()), ", allowed: the name of a file in the same folder");
  return name;
}

}  // namespace

ShardIndex::ShardIndex(const fs::path& folder)
    : json_(load_json(folder / kWeightIndex, kCheckpoint, {.unique_keys = true})),
      weight_map_(JsonView(json_, (folder / kWeightIndex).string(), kCheckpoint).at("weight_map")) {
  weight_map_.require(weight_map_.object().size() > 0, " is empty, expected names of tensors with their files");
  for (const auto& entry : weight_map_.members()) files_.insert(shard_of(entry));
}

std::vector<fs::path> weight_files(const fs::path& folder) {
  std::vector<fs::path> files;
  if (path_exists(folder / kWeightFile)) {
    files.push_back(folder / kWeightFile);
  } else if (path_exists(folder / kWeightIndex)) {
    const ShardIndex index(folder);
    for (const auto& name : index.files()) files.push_back(folder / name);
  }
  std::erase_if(files, [](const fs::path& file) { return !is_file(file); });
  return files;
}

}  // namespace evenkeel::models
