/// \file  What a run was made with and of: program, libraries, machine, and the fingerprints of the files it read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "fed/config.h"

namespace evenkeel {

/// Files a run depends on: the model folder's weights, config and tokenizer, the training file and the test files of
/// its tasks.
std::vector<std::filesystem::path> input_files(const ExperimentConfig& config,
                                               const std::filesystem::path& model_folder,
                                               std::span<const std::string> training_files);

/// Version, git hash (when built from a checkout), library versions, machine, time of creation, and path, bytes and
/// sha256 of `files`. Cost: one read of all files.
OrderedJson make_manifest(std::span<const std::filesystem::path> files);

/// \throws kIo or kData naming the first file of `manifest` that is gone or not the same any more.
/// Warns when the program's version is another.
void check_manifest(const Json& manifest);

}  // namespace evenkeel
