/// \file  Plans the runs of a study: makes a config for every arm and for every run (an arm with a seed), and compares
/// the arms' configs.
///
/// Settings are applied in this order: the base config, `set` of `[study]`, the settings of the command line, the
/// arm's settings, the pinned settings (pinned_settings()). A later setting replaces an earlier one. Then the paths of
/// the arm are resolved: every run of the arm, whenever it begins, reads the files and the revision that the paths
/// named when the arm was planned. The seed comes last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fed/store/run_request.h"
#include "study/definition/study_file.h"

namespace evenkeel::study {

/// The study file and the settings of the command line, from which the runs are planned.
struct StudyRequest {
  StudyFile file;
  std::vector<std::string> common{};  ///< settings of the command line, after `set` of the study file

  /// Returns the settings of every arm on top of the base config: first the study file's, then the command line's.
  std::vector<std::string> of_all_arms() const;
};

/// An arm with its configs.
struct PlannedArm {
  std::string name;
  fed::ExperimentConfig asked;     ///< base config with the common settings and the arm's settings
  fed::ExperimentConfig resolved;  ///< `asked` with the pinned settings, paths resolved at planning
  std::string text;                ///< content of ARM/arm.toml: `resolved`, then [cluster] if it is given
};

/// A run to be executed.
struct PlannedRun {
  std::string arm;
  int64_t seed = 0;
  fed::RunConfig config;  ///< output.dir is empty
};

/// Loads the base config with settings. \throws kIo, kConfig
fed::ExperimentConfig read_config(const std::filesystem::path& base, const std::vector<std::string>& settings);

/// Returns the pinned settings, which all runs share: threads, device, engine, kernels and compute dtype on this
/// machine, and the date of the chat template. Values that the base config and the common settings leave open are
/// chosen or measured here, once.
/// \param jobs  largest number of runs at the same time (study/definition/job_slots.h); they divide the cores of this
///              machine if `threads` is 0
/// \throws kConfig, kCheckpoint as machine_choices()
std::vector<std::string> pinned_settings(const StudyRequest& request, int64_t jobs);

/// Returns the request with evaluate.items = true as its first common setting, unless the base config or a setting
/// sets the key. The bootstrap of a study resamples rows within seeds (docs/study-statistics.md).
StudyRequest with_items(StudyRequest request);

/// Checks that arms differ from the reference only in keys that a paired comparison allows: [method], [train] except
/// train.rounds, train.stop and train.transport_dtype, name and [output]. [study] free allows further keys, but never
/// seed, threads, device, engine, kernels and compute dtype.
/// \throws kConfig naming arm, key and both values
void check_arms(const StudyRequest& request);

/// Returns the config of an arm as requested, without pinned settings and seed. \throws kConfig naming the arm
fed::ExperimentConfig asked_config(const StudyRequest& request, const ArmSection& arm);

/// Returns the arm of that name, or null.
const PlannedArm* find_arm(std::span<const PlannedArm> arms, std::string_view name);

/// Makes the configs of all arms. Paths are resolved now. If a known arm asked for the same path, its resolved path is
/// used.
/// \param pinned  the result of pinned_settings()
/// \param known   arms of the same study that are planned already; they are returned unchanged
/// \throws kIo, kData, kConfig naming the arm, the key and the allowed values; as check_arms()
std::vector<PlannedArm> plan_arms(const StudyRequest& request, const std::vector<std::string>& pinned,
                                  std::span<const PlannedArm> known = {});

/// Returns PlannedArm::resolved with the seed.
fed::ExperimentConfig resolved_config(const PlannedArm& arm, int64_t seed);

/// Makes the config of a run. \throws kConfig naming the arm
PlannedRun planned_run(const PlannedArm& arm, int64_t seed);

/// Makes the configs of all runs, seed by seed and within a seed arm by arm. \throws as planned_run()
std::vector<PlannedRun> plan_runs(std::span<const PlannedArm> arms, std::span<const int64_t> seeds);

/// Checks that every run has a task that is scored by the endpoint.
/// \throws kConfig naming the arm, its tasks and the endpoints that these have
void check_endpoint(Endpoint endpoint, std::span<const PlannedRun> runs);

/// Returns the sha256 of the config's text without output.dir.
std::string config_digest(const fed::RunConfig& config);

/// Returns the request by which a study was created, from its state. \param base  the study's base.toml
StudyRequest request_of(const StudyState& state, const std::filesystem::path& base);

/// Makes the state of a new study.
/// \param arms  of the request, in its order
StudyState new_state(const StudyRequest& request, const std::vector<std::string>& pinned,
                     std::span<const PlannedArm> arms, std::span<const PlannedRun> runs);

}  // namespace evenkeel::study
