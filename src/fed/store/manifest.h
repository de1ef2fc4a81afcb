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

/// The request that began a run, including the changes that resumed runs made since.
struct BegunRequest {
  std::vector<std::string> settings{};  ///< settings of the command line, as --set takes them
  ExperimentConfig config{};            ///< config before it was settled; a later train.rounds is in `settings` only
};
/// Reads the request that began the run. \throws as read_manifest()
BegunRequest begun_request(const std::filesystem::path& folder);
/// Returns the shell command that resumes the run in `folder`. \param more  words to append to the command
std::string resume_command(const std::filesystem::path& folder, const std::vector<std::string>& more = {});
/// Returns true if the folder has the manifest.json of a run, whole or damaged. Other programs write files of this name
/// too. The file counts as a run's if config.toml and checkpoint/ are beside it, or if it has a manifest's keys.
bool holds_manifest(const std::filesystem::path& folder);
/// Returns the error message for a folder for which holds_manifest() is false.
std::string why_no_run(const std::filesystem::path& folder);

/// Makes a file's entry in a manifest: path, bytes and fingerprint.
OrderedJson manifest_entry(const std::filesystem::path& file);

/// Returns true if the file has the length and fingerprint of a manifest's entry.
bool has_content(const std::filesystem::path& file, const JsonView& entry);

/// Checks that the folder holds the base model that a run was made with: of the files that count
/// (fed/store/model_files.h) exactly those in the manifest, with the recorded contents. Large files whose fingerprints
/// are cached are not read (base/format/fingerprint.h).
/// \param base      the folder of the base model now
/// \param may_move  false if the user cannot name another folder, for the message
/// \throws kIo, kData naming the file that is missing, has changed or was added, and what the user can do
void check_base(const Json& manifest, const std::filesystem::path& base, bool may_move = true);

/// Compares the input files with the manifest. The base model is read from `base` and checked by check_base().
/// \param why_fixed  returns why the run must not go on with a changed file; empty if it may
/// \param may_move   see check_base()
/// \return the changed files with which the run may go on
/// \throws kIo or kData naming the first input file that is missing, that has changed and must not, or that was added
/// to a model's folder
std::vector<std::filesystem::path> check_input_files(
    const std::filesystem::path& folder, const Json& manifest, const std::filesystem::path& base,
    const std::function<std::string(const std::filesystem::path& file)>& why_fixed, bool may_move = true);
/// Returns the members of `files` whose content differs from their manifest entry. Files of the base model, and files
/// without an entry, are not compared.
std::vector<std::filesystem::path> changed_among(const Json& manifest, std::span<const std::filesystem::path> files);
/// Returns true if the source of a described method (methods/described_method.h) differs from the manifest's.
/// \throws kConfig when it differs and `may_change` is false, and when the method has hooks that cannot be called
bool has_changed_method(const Json& manifest, const methods::MethodEntry& now, bool may_change);
/// Warns if the program's version or the processor is not the one that the run began with.
void check_program(const std::filesystem::path& folder, const Json& manifest);

/// Warns if GPU, driver or CUDA library are not the ones that the run began with. Does nothing on a CPU, or if the run
/// began on a CPU.
/// \param device  a device name as in model.device
void check_gpu(const std::filesystem::path& folder, const Json& manifest, const std::string& device);

}  // namespace evenkeel::fed
