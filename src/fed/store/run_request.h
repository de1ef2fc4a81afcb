/// \file  Describes the config that a command line requests, and compares it with the config of an existing run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/store/changed_keys.h"

namespace evenkeel::fed {

/// A config file and the settings that change it, as `--set` takes them.
struct RunRequest {
  std::filesystem::path file;
  std::vector<std::string> settings{};
  std::string out{};   ///< the run folder; empty: output.dir of the config
  std::string base{};  ///< to resume: folder that the base model was moved to; empty: it was not moved
  /// Keys of the nodes that may join, sorted, each as fingerprint and name. nullopt: the command has no list of keys.
  std::optional<std::vector<std::string>> allowed{};
  bool changed_method = false;  ///< true: a resumed run may use a changed source of its method in Python

  /// Loads the config, not settled. \param before  settings of an earlier request, applied first
  ExperimentConfig config(std::span<const std::string> before = {}) const;
  /// Returns true if the settings give a value to the key, or to a key of the table: "train.rounds", "model.products".
  bool says(std::string_view key) const;
  /// Returns train.rounds if the settings contain it, else nullopt. \param before  see config()
  std::optional<int64_t> rounds(std::span<const std::string> before) const;
};

/// Returns true if the settings give a value to the key, in whatever form: "train.rounds=3", "train={rounds=3}".
bool gives(std::span<const std::string> settings, std::string_view key);

/// Lists the keys that differ, each as a line like "train.rounds is 9, in the run 3". output.dir is not compared.
std::vector<std::string> difference_lines(const RunConfig& asked, const RunConfig& run);
/// Returns changed keys in the form of difference_lines().
std::vector<std::string> lines_of(std::span<const ChangedKey> changes);

/// Settles `asked`. Values that it leaves to the machine (threads, device, kernels, CUDA graphs) are taken from the
/// run. If `asked` has today's date, the run's date replaces it. If its chat template is a file with the text of the
/// run's copy, or a file that no longer exists, the run's copy replaces it.
RunConfig settled_like(ExperimentConfig asked, const RunConfig& run);

/// Changes a settled config before it is compared with a run's config; may be empty.
using SettledChange = std::function<RunConfig(const RunConfig& settled)>;

/// Lists the keys that a request changes in a run. A key whose text is the same in the request that began the run
/// changes nothing, even if it would settle to another value now: the run keeps the files, the revision and the
/// measured values that it was settled with. The other keys are settled and compared with the run's config.
/// \param now     the request
/// \param then    the request that began the run
/// \param as_run  applied to `now` after it is settled
/// \throws kIo, kData, kConfig when a path that differs from the first request does not exist
std::vector<ChangedKey> changes_of(const ExperimentConfig& now, const ExperimentConfig& then, const RunConfig& run,
                                   const SettledChange& as_run = {});

}  // namespace evenkeel::fed
