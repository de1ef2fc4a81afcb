/// \file  Defines the file study.json of a study's folder: its arms, its seeds, and the state of every run.
///
///   base.toml             copy of the config that every run starts from, as it was given
///   ARM/arm.toml          the config of an arm: base.toml with the settings, and every path as it was resolved
///   study.json            this state, sealed (base/plain/sealed.h)
///   study.toml            the study file, with base.toml as its base; written from study.json
///   ARM/seed-SEED/        an ordinary run folder (fed/run/run_folder.h)
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "fed/config/study_of_run.h"
#include "methods/described_method.h"
#include "scoring/measures.h"

namespace evenkeel::study {

inline constexpr std::string_view kStateFile = fed::kStudyState, kStudyFile = "study.toml", kBaseFile = "base.toml",
                                  kArmFile = "arm.toml";
inline constexpr int64_t kStateVersion = 1;

using Endpoint = scoring::MeasureName;  ///< the measure that arms are compared by

/// State of a run.
enum class RunState {
  kPlanned,  ///< not begun, or stopped in an orderly way; its folder may hold finished rounds
  kRunning,  ///< a process executes it, or the process or the machine was stopped during the run
  kDone,     ///< all rounds and evaluations are in its folder
  kFailed,   ///< it ended with an error
};
constexpr auto names(RunState) {
  return std::array{config::EnumName<RunState>{"planned", RunState::kPlanned},
                    config::EnumName<RunState>{"running", RunState::kRunning},
                    config::EnumName<RunState>{"done", RunState::kDone},
                    config::EnumName<RunState>{"failed", RunState::kFailed}};
}

/// An arm of the comparison: settings on top of the base config.
struct Arm {
  std::string name;
  std::vector<std::string> set;  ///< "a.b=value", as --set takes them
  std::string config_sha256{};   ///< of ARM/arm.toml; empty before the study is planned
  void visit(auto& field) {      // base/format/record.h, as below
    field("name", name);
    field("set", set);
    field.optional("config", config_sha256);
  }
  /// Returns true if name and settings are equal.
  bool operator==(const Arm& other) const { return name == other.name && set == other.set; }
};

/// One run: an arm with a seed.
struct StudyRun {
  std::string arm;
  int64_t seed = 0;
  std::string folder;  ///< below the study's folder: "ARM/seed-SEED"
  RunState state = RunState::kPlanned;
  std::optional<std::string> error{};  ///< error line of a failed run
  std::optional<double> seconds{};     ///< wall time of all processes that have worked on it
  std::string config_sha256;           ///< of the settled config without output.dir, when the run was planned
  void visit(auto& field) {
    field("arm", arm);
    field("seed", seed);
    field("folder", folder);
    field("state", state);
    field("error", error);
    field("seconds", seconds);
    field("config", config_sha256);
  }
  /// Returns "ARM:SEED", as --only takes it.
  std::string label() const;
};

/// The content of study.json.
struct StudyState {
  int64_t version = kStateVersion;
  std::string name;
  std::string reference;  ///< name of the arm that others are compared with
  Endpoint endpoint{};
  std::vector<int64_t> seeds{};
  std::vector<Arm> arms{};
  std::vector<std::string> set{};     ///< settings of every arm from the study file
  std::vector<std::string> common{};  ///< settings of every arm from the command line, applied after `set`
  std::vector<std::string> free{};    ///< keys in which arms may differ, beyond the keys that check_arms() allows
  std::vector<std::string> pinned{};  ///< pinned_settings() of all runs (study/definition/study_plan.h)
  std::string base_sha256{};          ///< of base.toml
  std::string moved_base{};           ///< folder that the base model was moved to; empty: it was not
  std::optional<methods::MethodDescriptions> methods{};  ///< methods in Python that arms use; empty: none
  std::vector<StudyRun> runs{};                          ///< every arm with every seed, once
  void visit(auto& field) {
    field("version", version);
    field("name", name);
    field("reference", reference);
    field("endpoint", endpoint);
    field("seeds", seeds);
    field("arms", arms);
    field.optional("set", set);
    field("common", common);
    field("free", free);
    field("pinned", pinned);
    field.optional("base", base_sha256);
    field.optional("moved_base", moved_base);
    field("methods", methods);
    field("runs", runs);
  }
  /// Returns the arm of that name, or null.
  const Arm* find_arm(std::string_view name) const;
  /// Returns the run of an arm and a seed, or null if there is none. The pointer refers into `runs`.
  const StudyRun* find(std::string_view arm, int64_t seed) const;
  StudyRun* find(std::string_view arm, int64_t seed);
  /// Returns the number of runs in that state.
  int64_t count(RunState state) const;
};

/// Returns the folder of a run below the study's folder: "ARM/seed-SEED".
std::string run_folder_name(std::string_view arm, int64_t seed);
/// Returns true if `name` is a valid name of an arm: up to 80 letters, digits, - and _, and dots between digits. The
/// first character is not -.
bool is_arm_name(std::string_view name);

/// Returns true if the folder holds a study.
bool holds_study(const std::filesystem::path& folder);
/// Reads study.json. Threads: any number of readers, while one process writes.
/// \throws kIo when the folder holds no study; kCheckpoint naming file and field when it is damaged, of another
/// version, or does not list every arm with every seed once
StudyState read_state(const std::filesystem::path& folder);
/// Writes study.json atomically. REQUIRES that this process holds the lock of the folder. \throws kIo
void write_state(const std::filesystem::path& folder, const StudyState& state);

}  // namespace evenkeel::study
