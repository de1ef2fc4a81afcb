#include "study/definition/study_folder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/format/command_line.h"
#include "base/format/record.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "fed/store/moved_rows.h"
#include "fed/store/run_checkpoint.h"
#include "fed/store/run_files.h"
#include "study/definition/equal_functions.h"
#include "study/definition/run_claims.h"
#include "study/definition/study_lock.h"

namespace evenkeel::study {
namespace {

bool is_file_or_temporary(const fs::path& entry, std::string_view name) {
  return entry.filename() == name || is_temporary_of(entry, name);
}

/// Returns true for the folder of an arm that holds at most the arm's config.
bool is_arm_without_runs(const fs::path& entry) {
  if (!is_folder(entry) || !is_arm_name(entry.filename().string())) return false;
  const auto entries = entries_of(entry);
  return std::all_of(entries.begin(), entries.end(),
                     [](const auto& one) { return is_file_or_temporary(one, kArmFile); });
}

/// Returns true for files that an interrupted create_study() left before it wrote study.json.
bool is_leftover(const fs::path& folder, const fs::path& entry) {
  return is_file_or_temporary(entry, kBaseFile) || is_temporary_of(entry, kStateFile) ||
         is_temporary_of(entry, kStudyFile) || (path_exists(folder / kBaseFile) && is_arm_without_runs(entry));
}

/// Returns true for the lock and the claims of a process that works in the folder.
bool is_lock(const fs::path& entry) { return FolderLock::is_lock(entry) || RunClaims::is_claim(entry); }

/// Returns true if `folder` contains a folder that looks like an arm.
bool holds_runs(const fs::path& folder) {
  for (const auto& arm : entries_of(folder)) {
    if (!is_folder(arm)) continue;
    for (const auto& run : entries_of(arm))
      if (run.filename().string().starts_with("seed-")) return true;
  }
  return false;
}

void write_study_file(const fs::path& folder, const StudyState& state) {
  const auto text = request_of(state, folder / kBaseFile).file.text(std::string(kBaseFile));
  const auto file = folder / kStudyFile;
  if (!path_exists(file) || read_file(file) != text) write_file_atomic(file, text);
}

const PlannedRun* find_run(const std::vector<PlannedRun>& runs, std::string_view arm, int64_t seed) {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const PlannedRun& run) { return run.arm == arm && run.seed == seed; });
  return found == runs.end() ? nullptr : &*found;
}

/// Returns the request with the study's own base and common settings.
StudyRequest at_home(const StudyRequest& request, const Study& study) {
  StudyRequest home = request;
  home.file.base = study.folder / kBaseFile;
  home.common = study.state.common;
  for (const auto& setting : request.common)
    if (std::find(home.common.begin(), home.common.end(), setting) == home.common.end()) home.common.push_back(setting);
  return home;
}

/// Checks that the request asks for all runs of the study, and for nothing else in their arms than it was made with.
/// \param asked  the request with the common settings of the study
void check_arms_of(const Study& study, const StudyRequest& asked) {
  const auto name = study.folder.string();
  const auto& arms = asked.file.study.arm;
  const auto& seeds = asked.file.study.seeds;
  for (const auto& run : study.runs) {
    const auto arm = std::find_if(arms.begin(), arms.end(), [&](const ArmSection& one) { return one.name == run.arm; });
    EK_CHECK(arm != arms.end() && std::find(seeds.begin(), seeds.end(), run.seed) != seeds.end(), kConfig, name,
             " holds a study with ", run.arm, ":", run.seed,
             ", which the study file lacks; arms and seeds can be added, not taken away; choose another --out");
    if (run.seed != study.state.seeds.front()) continue;
    const auto changes = fed::changes_of(asked_config(asked, *arm), find_arm(study.arms, run.arm)->asked, run.config);
    EK_CHECK(changes.empty(), kConfig, name, " holds a study whose ", run.arm, ":", run.seed,
             " has another config: ", join(fed::lines_of(changes), "; "), "; choose another --out");
  }
}

/// Checks that a new arm starts from the base config of the study.
void check_base_of_new(const Study& study, const StudyRequest& asked, std::span<const PlannedArm> planned) {
  for (const auto& arm : asked.file.study.arm) {
    if (study.state.find_arm(arm.name) != nullptr) continue;
    const auto& home = *find_arm(planned, arm.name);
    const auto run = planned_run(home, study.state.seeds.front());
    const auto changes = fed::changes_of(asked_config(asked, arm), home.asked, run.config);
    EK_CHECK(changes.empty(), kConfig, study.folder.string(),
             " holds a study with another base config: ", join(fed::lines_of(changes), "; "), "; choose another --out");
  }
}

/// Reads the config of an arm. A base that was moved since then is where it is now.
/// \throws kIo, kCheckpoint when it is missing or not the one of study.json
PlannedArm read_arm(const fs::path& folder, const Arm& arm, const StudyRequest& request,
                    const std::string& moved_base) {
  const auto file = folder / arm.name / kArmFile;
  EK_CHECK(path_exists(file), kIo, file.string(), " is missing: the config that the runs of arm ", arm.name,
           " start from");
  auto text = read_file(file);
  EK_CHECK(sha256(text) == arm.config_sha256, kCheckpoint, file.string(),
           " is not the config that the arm was made with: its sha256 was ", arm.config_sha256);
  auto resolved = fed::ExperimentConfig::read(config::Table::parse(text, file.string()));
  if (!moved_base.empty()) resolved.model.path = moved_base;
  fed::find_moved_rows(resolved, folder);
  return {arm.name, asked_config(request, {arm.name, arm.set}), std::move(resolved), std::move(text)};
}

/// Writes the configs of arms. A file of an arm that never came into study.json is replaced.
void write_arms(const fs::path& folder, std::span<const PlannedArm> arms) {
  for (const auto& arm : arms) {
    const auto file = folder / arm.name / kArmFile;
    if (path_exists(file) && read_file(file) == arm.text) continue;
    make_folders(file.parent_path());
    write_file_atomic(file, arm.text);
  }
}

/// Merges two states. Runs keep their indices, which claims and shards refer to.
StudyState merged(const StudyState& old, const StudyState& asked) {
  auto state = asked;
  state.base_sha256 = old.base_sha256;
  if (state.moved_base.empty()) state.moved_base = old.moved_base;
  state.runs = old.runs;
  for (const auto& run : asked.runs)
    if (old.find(run.arm, run.seed) == nullptr) state.runs.push_back(run);
  return state;
}

std::string text_of(const StudyState& state) { return record::write(state).dump(); }

Study with_runs(const fs::path& folder, StudyState state, std::vector<PlannedArm> arms, StudyState opened) {
  const auto planned = plan_runs(arms, state.seeds);
  Study study{folder, std::move(state), std::move(arms), {}, std::move(opened)};
  for (const auto& run : study.state.runs) study.runs.push_back(*find_run(planned, run.arm, run.seed));
  return study;
}

/// Returns the text of study.json without how far its runs are. It changes only when a study is extended or its base is
/// moved.
std::string plan_text(StudyState state) {
  for (auto& run : state.runs)
    run = {.arm = run.arm, .seed = run.seed, .folder = run.folder, .config_sha256 = run.config_sha256};
  return text_of(state);
}

/// Writes study.json and study.toml. REQUIRES that this process holds the lock of the folder.
void write_files(const fs::path& folder, const StudyState& state) {
  fed::remove_parts(folder, {std::string(kStateFile), std::string(kStudyFile), std::string(kBaseFile)});
  write_state(folder, state);
  write_study_file(folder, state);
}

/// Writes an extension, with the states that the runs have now.
/// \return false, and nothing is written, if another process has extended the study since it was opened
bool save_unless_extended(Study& study) {
  const auto lock = lock_state(study.folder);
  const auto now = read_state(study.folder);
  if (plan_text(now) != plan_text(study.opened)) return false;
  std::copy(now.runs.begin(), now.runs.end(), study.state.runs.begin());
  if (text_of(study.state) == text_of(now)) return true;
  log::info("[study] ", study.folder.string(), ": the study file has changed, ",
            study.state.runs.size() - now.runs.size(), " runs are added");
  write_arms(study.folder, study.arms);
  write_files(study.folder, study.state);
  return true;
}

/// Checks the request as a study file.
void check_as_file(const StudyRequest& request, const fs::path& folder) {
  StudyFile file;
  config::read(config::Table::parse(request.file.text(std::string(kBaseFile)), (folder / kStudyFile).string()), file);
}

/// Returns the study as other processes have extended it since it was opened, with what the request adds.
Study extended_again(const StudyRequest& request, const Study& study) {
  auto now = open_study(study.folder);
  const auto& base = study.state.moved_base;
  if (base != study.opened.moved_base) now = with_base(now, base);
  const auto whole = with_added(request, now.state);
  check_as_file(whole, study.folder);
  auto next = extended(whole, now);
  check_endpoint(next.state.endpoint, next.runs);
  check_equal_functions(whole.file.study, next.runs);
  return next;
}

}  // namespace

void check_new(const fs::path& folder) {
  check_path_text(folder.string(), "--out");
  if (!path_exists(folder)) return;
  EK_CHECK(is_folder(folder), kIo, folder.string(), ": is a file; choose another --out");
  const auto entries = entries_of(folder);
  const auto may_stay = [&](const fs::path& entry) {
    return is_lock(entry) || is_leftover(folder, entry) || entry.filename() == fed::run_file("rows");
  };
  if (std::all_of(entries.begin(), entries.end(), may_stay)) return;
  EK_CHECK(!holds_runs(folder), kIo, folder.string(), ": holds runs of a study, but ", kStateFile,
           " is missing; put it back, or choose another --out");
  fail(kIo, folder.string(), ": exists already and is not empty; choose another --out");
}

bool create_study(const Study& study, const StudyRequest& request) {
  const auto& folder = study.folder;
  make_folders(folder);
  const auto lock = lock_state(folder);
  if (holds_study(folder)) return false;
  check_new(folder);
  const auto base = read_file(request.file.base);
  auto leftovers = entries_of(folder);
  std::erase_if(leftovers, [&](const fs::path& entry) { return !is_leftover(folder, entry); });
  for (const auto& entry : leftovers) remove_path(entry);
  write_file_atomic(folder / kBaseFile, base);
  write_arms(folder, study.arms);
  write_state(folder, study.state);
  write_study_file(folder, study.state);
  return true;
}

Study open_study(const fs::path& folder) {
  auto state = read_state(folder);
  const auto base = folder / kBaseFile;
  EK_CHECK(path_exists(base), kIo, base.string(), " is missing: the config that the study's runs start from");
  EK_CHECK(sha256_file(base) == state.base_sha256, kCheckpoint, base.string(),
           " is not the config that the study was made with: its sha256 was ", state.base_sha256);
  const auto request = request_of(state, base);
  std::vector<PlannedArm> arms;
  for (const auto& arm : state.arms) arms.push_back(read_arm(folder, arm, request, state.moved_base));
  return with_runs(folder, state, std::move(arms), state);
}

Study with_base(const Study& study, const std::string& base) {
  std::set<std::string> bases;
  for (const auto& arm : study.arms) bases.insert(arm.resolved.model.path);
  EK_CHECK(bases.size() == 1, kConfig, "--base is ", base, ", but the arms of ", study.folder.string(),
           " have several base models, ", join(std::vector(bases.begin(), bases.end())), ", allowed: with one for all");
  auto state = study.state;
  auto arms = study.arms;
  state.moved_base = absolute_path(models::find_model_folder(base));
  for (auto& arm : arms) arm.resolved.model.path = state.moved_base;
  return with_runs(study.folder, std::move(state), std::move(arms), study.opened);
}

Study extended(const StudyRequest& request, const Study& study) {
  const auto home = at_home(request, study);
  auto with_common = request;
  with_common.common = home.common;
  check_arms_of(study, with_common);
  auto arms = plan_arms(home, study.state.pinned, study.arms);
  check_base_of_new(study, with_common, arms);
  auto asked = new_state(home, study.state.pinned, arms, plan_runs(arms, home.file.study.seeds));
  asked.name = study.state.name;
  asked.moved_base = study.state.moved_base;
  return with_runs(study.folder, merged(study.state, asked), std::move(arms), study.opened);
}

StudyRequest with_added(StudyRequest request, const StudyState& state) {
  auto& arms = request.file.study.arm;
  for (const auto& arm : state.arms)
    if (std::none_of(arms.begin(), arms.end(), [&](const ArmSection& known) { return known.name == arm.name; }))
      arms.push_back({arm.name, arm.set});
  auto& seeds = request.file.study.seeds;
  for (const int64_t seed : state.seeds)
    if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
  return request;
}

Study save_extension(const StudyRequest& request, Study study) {
  while (!save_unless_extended(study)) study = extended_again(request, study);
  return study;
}

StudyState update_state(const fs::path& folder, const std::function<void(StudyState&)>& change) {
  const auto lock = lock_state(folder);
  auto state = read_state(folder);
  change(state);
  write_files(folder, state);
  return state;
}

}  // namespace evenkeel::study
