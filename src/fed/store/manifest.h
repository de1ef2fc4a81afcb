/// \file  What a run was made with and of: program, libraries, machine, and the fingerprints of the files it read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/sealed.h"
#include "fed/store/run_request.h"

namespace evenkeel {

inline constexpr std::string_view kManifestFile = "manifest.json";  ///< in a run folder

/// Weights, config.json, generation_config.json and tokenizer.json of a model's folder, in name order.
std::vector<std::filesystem::path> model_files(const std::filesystem::path& folder);

/// Files a run depends on: the model folder's weights, config and tokenizer, the adapter it starts from, the training
/// file and the test files of its tasks.
std::vector<std::filesystem::path> input_files(const ExperimentConfig& config,
                                               const std::filesystem::path& model_folder,
                                               std::span<const std::string> training_files);

/// Format of the run folder, version, git hash (when built from a checkout), library versions, machine, time of
/// creation; path, bytes and fingerprint (base/format/fingerprint.h) of `files`, and which clients bring it, where they
/// bring their own; what the command line asked for and the resolved config it came to. Cost: one read of all files
/// that are not known yet.
OrderedJson make_manifest(const ExperimentConfig& config, const RunRequest& request,
                          std::span<const std::filesystem::path> files);

/// manifest.json of a run folder, sealed (base/plain/sealed.h): its presence makes the run.
void write_manifest(const std::filesystem::path& folder, const OrderedJson& manifest);
/// \throws kCheckpoint when it is damaged, or of an older version without checksums.
Json read_manifest(const std::filesystem::path& folder);
/// The command that goes on with the run in `folder`, for a shell. \param more  words behind it
std::string resume_command(const std::filesystem::path& folder, const std::vector<std::string>& more = {});
/// Whether the run was made before run folders had checksums.
bool is_unsealed_run(const std::filesystem::path& folder);

/// What a manifest says of a file: path, bytes and fingerprint.
OrderedJson manifest_entry(const std::filesystem::path& file);

/// Whether the file has the bytes that an entry of a manifest tells of.
bool has_content(const std::filesystem::path& file, const JsonView& entry);

/// Warns when the program's version or the kind of processor is another.
/// \param why_fixed  why a file that has changed may not; empty where it may
/// \return those that may change and have. \throws kIo or kData naming the first input file of `manifest` that is gone,
/// or not the same any more and fixed.
std::vector<std::filesystem::path> check_manifest(
    const std::filesystem::path& folder, const Json& manifest,
    const std::function<std::string(const std::filesystem::path& file)>& why_fixed);

/// Warns when the GPU, its driver or its library is another one than the run was begun on.
/// \param device  as model.device
void check_gpu(const std::filesystem::path& folder, const Json& manifest, const std::string& device);

}  // namespace evenkeel
