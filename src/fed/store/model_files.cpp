#include "fed/store/model_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/plain/files.h"
#include "models/weight_files.h"

namespace evenkeel::fed {
namespace {

/// Files of a fixed name besides the weights.
constexpr auto kNames = std::to_array<std::string_view>(
    {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
     "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja", "adapter_config.json"});
constexpr std::string_view kTemplates = "additional_chat_templates";  // a folder of named templates

/// Returns the files of weights that loading the folder reads, and their index.
std::vector<fs::path> files_of_weights(const fs::path& folder) {
  auto files = models::weight_files(folder);
  const auto index = folder / models::kWeightIndex;
  if (!path_exists(folder / models::kWeightFile) && is_file(index)) files.push_back(index);
  return files;
}

bool counts(const fs::path& file) {
  return file.extension() == ".model" ||
         std::find(kNames.begin(), kNames.end(), file.filename().string()) != kNames.end();
}

}  // namespace

std::vector<fs::path> model_files(const fs::path& folder) {
  auto files = files_of_weights(folder);
  for (const auto& entry : entries_of(folder))
    if (is_file(entry) && counts(entry)) files.push_back(entry);
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
