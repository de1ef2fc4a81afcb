/// \file  Says which files of a model's folder hold its weights: model.safetensors, or else the shards that
/// model.safetensors.index.json names. Nothing else is loaded, such as the consolidated.safetensors that Mistral
/// publishes beside its shards.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::models {

inline constexpr std::string_view kWeightFile = "model.safetensors", kWeightIndex = "model.safetensors.index.json";

/// The index of a checkpoint in several files.
class ShardIndex {
 public:
  /// Reads the index of a folder.
  /// \throws kCheckpoint when it is malformed, names no tensor, or names a file that cannot lie in the same folder; kIo
  /// when it cannot be read
  explicit ShardIndex(const std::filesystem::path& folder);
  ShardIndex(const ShardIndex&) = delete;
  ShardIndex& operator=(const ShardIndex&) = delete;

  /// Returns the object that maps names of tensors to names of files.
  const JsonView& weight_map() const { return weight_map_; }
  /// Returns the names of all files.
  const std::set<std::string>& files() const { return files_; }

 private:
  Json json_;
  JsonView weight_map_;  // refers to json_
  std::set<std::string> files_;
};

/// Returns the existing files of weights that loading a folder opens, in name order; none if it has no weights. Loading
/// reports a shard that is missing.
/// \throws kCheckpoint and kIo as ShardIndex()
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder);

}  // namespace evenkeel::models
