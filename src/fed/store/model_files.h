/// \file  Says which files of a model's folder determine its results. These are the files that this program or
/// transformers reads: their content decides tokens, weights or texts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace evenkeel::fed {

/// Lists the files of a model's folder that count, in name order: config.json and generation_config.json, the weights
/// that are loaded (model.safetensors, or model.safetensors.index.json and the files that it names), the files of the
/// tokenizer and of chat templates, and the config of an adapter. Only existing files are listed. \throws kIo when
/// there is no such folder; kCheckpoint when that index is malformed
std::vector<std::filesystem::path> model_files(const std::filesystem::path& folder);

/// Returns the name of a file of model_files(folder) in its folder, as "tokenizer.json".
std::string model_file_name(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace evenkeel::fed
