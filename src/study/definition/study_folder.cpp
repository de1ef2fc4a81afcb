#include "study/definition/study_folder.h"

#include <algorithm>
#include <array>

#include "base/format/command_line.h"
#include "base/format/record.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "fed/store/run_checkpoint.h"
#include "study/definition/run_claims.h"
#include "study/definition/study_lock.h"

namespace evenkeel::study {
namespace {

/// Returns true for the lock, and for files that an interrupted create_study() left before it wrote study.json.
bool is_leftover(const fs::path& entry) {
  constexpr std::array<std::string_view, 2> kFirst = {kBaseFile, kStateFile};
  if (FolderLock::is_lock(entry) || RunClaims::is_claim(entry)) return true;
  return std::any_of(kFirst.begin(), kFirst.end(), [&](std::string_view name) {
    return (entry.filename() == name && name != kStateFile) || is_temporary_of(entry, name);
  });
}

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

void check_same(const PlannedRun& asked, const PlannedRun& run, const fs::path& folder) {
  const auto changes = fed::difference_lines(asked.config, run.config);
  EK_CHECK(changes.empty(), kConfig, folder.string(), " holds a study whose ", run.arm, ":", run.seed,
           " has another config: ", join(changes, "; "), "; choose another --out");
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

void check_runs(const Study& study, const std::vector<PlannedRun>& asked, const std::vector<PlannedRun>& home) {
  for (size_t i = 0; i < home.size(); ++i) check_same(asked[i], home[i], study.folder);
  for (const auto& run : study.runs) {
    const auto* same = find_run(home, run.arm, run.seed);
    EK_CHECK(same != nullptr, kConfig, study.folder.string(), " holds a study with ", run.arm, ":", run.seed,
             ", which the study file lacks; arms and seeds can be added, not taken away; choose another --out");
    check_same(*same, run, study.folder);
  }
}

/// Merges two states. Runs keep their indices, which claims and shards refer to.
StudyState merged(const StudyState& old, const StudyState& asked) {
  auto state = asked;
  state.base = old.base;
  state.runs = old.runs;
  for (const auto& run : asked.runs)
    if (old.find(run.arm, run.seed) == nullptr) state.runs.push_back(run);
  return state;
}

std::string text_of(const StudyState& state) { return record::write(state).dump(); }

Study with_runs(const fs::path& folder, StudyState state, const std::vector<PlannedRun>& planned) {
  Study study{.folder = folder, .state = std::move(state), .runs = {}};
  for (const auto& run : study.state.runs) study.runs.push_back(*find_run(planned, run.arm, run.seed));
  return study;
}

}  // namespace

void check_new(const fs::path& folder) {
  check_path_text(folder.string(), "--out");
  if (!path_exists(folder)) return;
  EK_CHECK(is_folder(folder), kIo, folder.string(), ": is a file; choose another --out");
  const auto entries = entries_of(folder);
  if (std::all_of(entries.begin(), entries.end(), is_leftover)) return;
  EK_CHECK(!holds_runs(folder), kIo, folder.string(), ": holds runs of a study, but ", kStateFile,
           " is missing; put it back, or choose another --out");
  fail(kIo, folder.string(), ": exists already and is not empty; choose another --out");
}

void create_study(const fs::path& folder, const StudyRequest& request, const StudyState& state) {
  make_folders(folder);
  const auto lock = lock_state(folder);
  if (holds_study(folder)) return;
  check_new(folder);
  write_file_atomic(folder / kBaseFile, read_file(request.file.base));
  write_state(folder, state);
  write_study_file(folder, state);
}

Study open_study(const fs::path& folder) {
  auto state = read_state(folder);
  const auto base = folder / kBaseFile;
  EK_CHECK(path_exists(base), kIo, base.string(), " is missing: the config that the study's runs start from");
  EK_CHECK(sha256_file(base) == state.base, kCheckpoint, base.string(),
           " is not the config that the study was made with: its sha256 was ", state.base);
  const auto planned = plan_runs(request_of(state, base), state.pinned);
  return with_runs(folder, std::move(state), planned);
}

Study extended(const StudyRequest& request, const Study& study) {
  const auto home = at_home(request, study);
  auto with_common = request;
  with_common.common = home.common;
  const auto planned = plan_runs(home, study.state.pinned);
  check_runs(study, plan_runs(with_common, study.state.pinned), planned);
  auto asked = new_state(home, study.state.pinned, planned);
  asked.name = study.state.name;
  return with_runs(study.folder, merged(study.state, asked), planned);
}

void save_extension(const Study& study) {
  const auto now = read_state(study.folder);
  const auto next = merged(now, study.state);
  if (text_of(next) == text_of(now)) return;
  log::info("[study] ", study.folder.string(), ": the study file has changed, ", next.runs.size() - now.runs.size(),
            " runs are added");
  update_state(study.folder, [&](StudyState& state) { state = merged(state, study.state); });
}

StudyState update_state(const fs::path& folder, const std::function<void(StudyState&)>& change) {
  const auto lock = lock_state(folder);
  auto state = read_state(folder);
  change(state);
  fed::remove_parts(folder, {std::string(kStateFile), std::string(kStudyFile), std::string(kBaseFile)});
  write_state(folder, state);
  write_study_file(folder, state);
  return state;
}

}  // namespace evenkeel::study
