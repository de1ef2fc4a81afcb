#include "fed/store/model_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kWeights = "model.safetensors", kIndex = "model.safetensors.index.json";
/// Files of a fixed name besides the weights.
constexpr auto kNames = std::to_array<std::string_view>(
    {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
     "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "adapter_config.json"});
constexpr std::string_view kTemplates = "additional_chat_templates";  // a folder of named templates

/// Returns true for a file of weights that loading the folder reads. \param index  text of the index; empty: there is
/// none
bool is_loaded(const fs::path& file, bool is_single, const std::string& index) {
  const auto name = file.filename().string();
  if (is_single) return name == kWeights;
  return name == kIndex || (file.extension() == ".safetensors" && index.find(concat('"', name, '"')) != index.npos);
}

bool counts(const fs::path& file) {
  return file.extension() == ".model" ||
         std::find(kNames.begin(), kNames.end(), file.filename().string()) != kNames.end();
}

}  // namespace

std::vector<fs::path> model_files(const fs::path& folder) {
  const bool is_single = path_exists(folder / kWeights);
  const auto index = !is_single && is_file(folder / kIndex) ? read_file(folder / kIndex) : std::string();
  std::vector<fs::path> files;
  for (const auto& entry : entries_of(folder))
    if (is_file(entry) && (counts(entry) || is_loaded(entry, is_single, index))) files.push_back(entry);
  if (is_folder(folder / kTemplates))
    for (const auto& entry : entries_of(folder / kTemplates))
      if (is_file(entry) && entry.extension() == ".jinja") files.push_back(entry);
  std::sort(files.begin(), files.end());
  return files;
}

std::string model_file_name(const fs::path& file, const fs::path& folder) {
  return file.lexically_relative(folder).generic_string();
}

}  // namespace evenkeel::fed
