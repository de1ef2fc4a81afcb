#include "models/end_tokens.h"

#include <algorithm>
#include <filesystem>

#include "base/plain/files.h"
#include "models/unread_keys.h"

namespace evenkeel::models {
namespace {

constexpr std::string_view kKey = "eos_token_id";

std::vector<int64_t> ids_of(const ModelConfig& config) {
  std::vector<int64_t> ids;
  for (const int64_t id : config.token_ids(kKey))
    if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  return ids;
}

}  // namespace

std::vector<int64_t> ends_of_generation(const ModelConfig& config) {
  const std::filesystem::path file = config.origin();
  const auto generation_config = file.parent_path() / "generation_config.json";
  if (file.filename() != "config.json" || !path_exists(generation_config)) return ids_of(config);
  const auto generation = ModelConfig::load(generation_config);
  warn_of_generation_keys(generation);
  return ids_of(generation);
}

int64_t end_behind_texts(const ModelConfig& config) {
  if (const auto own = ids_of(config); !own.empty()) return own.front();
  const auto ends = ends_of_generation(config);
  return ends.empty() ? -1 : ends.front();
}

}  // namespace evenkeel::models
