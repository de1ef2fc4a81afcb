/// \file  Applies the changes that are allowed when a run is resumed: test files from which no score was computed yet,
/// the number of rounds, the folder of a base model that was moved, the keys of fed/store/changeable_keys.h, the source
/// of a method in Python, and the list of keys of nodes that may join. Each change is recorded under "changes" in the
/// run's manifest, with the number of rounds after which it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/plain/sealed.h"
#include "fed/config/run_config.h"
#include "fed/store/changed_keys.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {

/// Keys of the config with new values.
struct KeyChanges {
  std::vector<ChangedKey> keys{};       ///< new and earlier values
  std::vector<std::string> settings{};  ///< the members of `keys` that the command line gave, as --set takes them
  std::string asked{};                  ///< TOML of the config that began the run, unsettled, with the new values
};

/// Keys of the nodes that may join, each as fingerprint and name, like "allowed" in the manifest.
struct AdmissionChange {
  std::vector<std::string> allowed{};           ///< all keys that may join now, sorted
  std::vector<std::string> added{}, removed{};  ///< compared with the manifest
};

/// The changes of one resumed run.
struct RunChanges {
  std::vector<std::filesystem::path> files{};  ///< files whose contents differ from the manifest
  std::optional<int64_t> rounds{};             ///< the new train.rounds
  std::filesystem::path base{};                ///< folder that the base model was moved to; empty: it was not moved
  KeyChanges keys{};
  std::optional<AdmissionChange> admission{};
  bool method = false;  ///< true: the source of the run's method in Python has changed
  bool any() const { return !files.empty() || rounds || !base.empty() || !keys.keys.empty() || admission || method; }
};

/// Returns why the run must not go on with the new content of `file`, or an empty string if it may. A file may change
/// if it is a test file, a file of the BERTScore encoder or its baseline, is no training file, and none of `scores` was
/// computed from it.
/// \param file  an absolute path
/// \param training_files  as in the run's partition.json
std::string why_fixed(const std::filesystem::path& file, const RunConfig& config,
                      std::span<const std::string> training_files, std::span<const EvaluationRecord> scores);

/// Checks that a run with `done` committed rounds may have `rounds` rounds in all.
/// \param config  the config before the change
/// \throws kConfig when `rounds` is below `done`; when train.stop or evaluate.keep_best is used and `rounds` is not
/// above evaluate.every; when the learning-rate schedule or the noise of [privacy] depends on the number of rounds and
/// a round is done, or when a run with privacy.unit = "client" has such noise
void check_extension(const RunConfig& config, int64_t done, int64_t rounds);

/// Compares the nodes' keys that may join now with the manifest's list.
/// \return nullopt if they are the same \throws kCheckpoint when the manifest is damaged
std::optional<AdmissionChange> admission_change(const Json& manifest, const std::vector<std::string>& allowed);

/// Makes the manifest of a run after `changes`.
/// \param config  the config with the changes
/// \param done    number of the last committed round
OrderedJson changed_manifest(const OrderedJson& manifest, const RunChanges& changes, const RunConfig& config,
                             int64_t done);

/// Returns true if `text` is the config.toml from before the manifest's last change. A process that was killed between
/// writing the manifest and config.toml leaves such a file behind.
bool is_config_before_change(const Json& manifest, std::string_view text);

}  // namespace evenkeel::fed
