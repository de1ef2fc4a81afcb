/// \file  Writes and checks the manifest of a run: program, libraries, machine, and the fingerprints of the files it
/// read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/sealed.h"
#include "fed/store/model_files.h"
#include "fed/store/run_files.h"
#include "fed/store/run_request.h"

namespace evenkeel::fed {

inline constexpr std::string_view kManifestFile = run_file("manifest.json");

/// Lists the files that a run depends on: weights, config and tokenizer of the model, chat template, starting adapter,
/// training files, test files of its tasks, and the BERTScore encoder with its baseline.
std::vector<std::filesystem::path> input_files(const RunConfig& config, const std::filesystem::path& model_folder,
                                               std::span<const std::string> training_files);

/// Makes the manifest. It holds the format of the run folder, version, git hash (if built from a checkout), library
/// versions, machine, time of creation, the request, the config as it was asked for and as it was settled, and the
/// folders of the base model and of the BERTScore encoder. For each of `files` it holds path, bytes, fingerprint
/// (base/format/fingerprint.h), the clients that own it, and the model that it belongs to. Cost: reads all files that
/// are not fingerprinted yet.
OrderedJson make_manifest(const RunConfig& config, const RunRequest& request, const ExperimentConfig& asked,
                          std::span<const std::filesystem::path> files);

/// Writes manifest.json, sealed (base/plain/sealed.h). A folder with this file holds a run.
void write_manifest(const std::filesystem::path& folder, const OrderedJson& manifest);
/// Reads manifest.json. \throws kCheckpoint when it is damaged or of an unknown format
Json read_manifest(const std::filesystem::path& folder);

/// What the command that began a run asked for.
struct BegunRequest {
  std::vector<std::string> settings{};  ///< of the command line
  ExperimentConfig config{};            ///< file and settings
};
/// Returns the request of the command that began the run. \throws as read_manifest()
BegunRequest begun_request(const std::filesystem::path& folder);
/// Returns the shell command that resumes the run in `folder`. \param more  words to append
std::string resume_command(const std::filesystem::path& folder, const std::vector<std::string>& more = {});
/// Returns true if the folder has the manifest.json of a run, whole or damaged. Other programs have files of this name
/// too: one is taken for a run's if it has the keys of a run's, or if config.toml and checkpoint/ are beside it.
bool holds_manifest(const std::filesystem::path& folder);
/// Returns the message about a folder for which holds_manifest() is false.
std::string why_no_run(const std::filesystem::path& folder);

/// Makes a file's entry in a manifest: path, bytes and fingerprint.
OrderedJson manifest_entry(const std::filesystem::path& file);

/// Returns true if the file has the length and fingerprint of a manifest's entry.
bool has_content(const std::filesystem::path& file, const JsonView& entry);

/// Checks that the folder holds the base model that a run was made with: the files that count
/// (fed/store/model_files.h), no other ones, with the recorded contents. Only files whose identity is not known are
/// read (base/format/fingerprint.h).
/// \param base      the folder of the base model now
/// \param may_move  false if the user cannot name another folder, for the message
/// \throws kIo, kData naming the file that is missing, has changed or was added, and what the user can do
void check_base(const Json& manifest, const std::filesystem::path& base, bool may_move = true);

/// Compares the input files with the manifest. Files of the base model are those of `base`, see check_base().
/// \param why_fixed  returns why the run must not go on with a changed file; empty if it may
/// \param may_move   as check_base() has it
/// \return the changed files with which the run may go on
/// \throws kIo or kData naming the first input file that is missing, or that has changed and must not
std::vector<std::filesystem::path> check_input_files(
    const std::filesystem::path& folder, const Json& manifest, const std::filesystem::path& base,
    const std::function<std::string(const std::filesystem::path& file)>& why_fixed, bool may_move = true);
/// Returns those of `files` that are in the manifest with another content. Files of the base model are not compared.
std::vector<std::filesystem::path> changed_among(const Json& manifest, std::span<const std::filesystem::path> files);
/// Returns true if the source of a described method differs from that in the manifest (methods/described_method.h).
/// \throws kConfig when it differs and `may_change` is false, and when its hooks are needed but cannot be called
bool has_changed_method(const Json& manifest, const methods::MethodEntry& now, bool may_change);
/// Warns if the program's version or the processor differs from those with which the run began.
void check_program(const std::filesystem::path& folder, const Json& manifest);

/// Warns if GPU, driver or CUDA library differ from those on which the run began.
/// \param device  a device name as in model.device
void check_gpu(const std::filesystem::path& folder, const Json& manifest, const std::string& device);

}  // namespace evenkeel::fed
