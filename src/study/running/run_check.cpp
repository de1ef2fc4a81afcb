#include "study/running/run_check.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/plain/files.h"
#include "fed/run/best_round.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/stored_config.h"
#include "fed/run/stored_records.h"
#include "fed/store/manifest.h"

namespace evenkeel::study {
namespace {

constexpr std::chrono::seconds kPatienceWithRun{10};  // to wait for a killed process to end

void check_unused(const fs::path& folder) {
  const auto deadline = std::chrono::steady_clock::now() + kPatienceWithRun;
  while (FolderLock::holder(folder) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  FolderLock::check_free(folder, "wait for its end");
}

/// Refuses a folder that has files but no run.
void check_whole(const fs::path& folder) {
  EK_CHECK(fed::holds_run(folder) || fed::nothing_began(folder), kIo, folder.string(),
           ": manifest.json is missing and other files are there; put it back, or move the folder away to make the run "
           "again");
}

void check_config(const Study& study, const PlannedRun& run, const fs::path& folder) {
  const auto then = fed::begun_request(folder).config;
  auto now = resolved_config(*find_arm(study.arms, run.arm), run.seed);
  if (!study.state.moved_base.empty()) now.model.path = then.model.path;  // compared by its files (study_check.h)
  const auto changes = fed::changes_of(now, then, fed::run_config(folder));
  EK_CHECK(changes.empty(), kConfig, folder.string(),
           " holds a run of another study: ", join(fed::lines_of(changes), "; "), "; move it away");
}

/// Checks a run that is done according to study.json.
void check_done(const fs::path& folder, int64_t rounds) {
  const auto there = static_cast<int64_t>(fed::read_rounds(folder).whole().lines.size());
  EK_CHECK(there == rounds, kCheckpoint, (folder / "rounds.jsonl").string(), " holds ", there, " rounds of ", rounds,
           ", but the run is done; put the file back, or move the folder away to make the run again");
  for (const auto* file : {"checkpoint/commit.json", "evaluations.jsonl", "adapter/adapter_model.safetensors"})
    EK_CHECK(path_exists(folder / file), kIo, (folder / file).string(),
             " is missing, but the run is done; put it back, or move the folder away to make the run again");
}

}  // namespace

void check_run(const Study& study, size_t index, bool again) {
  const auto& state = study.state.runs[index];
  const auto folder = study.folder / state.folder;
  const bool done = state.state == RunState::kDone;
  try {
    check_unused(folder);
    check_whole(folder);
    const bool there = fed::holds_run(folder);
    EK_CHECK(there || again || !done, kIo, folder.string(),
             " is gone, but the run is done; put it back, or make it again by --resume --only ", state.label());
    if (!there) return;
    check_config(study, study.runs[index], folder);
    if (done) check_done(folder, fed::total_rounds(folder, study.runs[index].config->train.rounds));
  } catch (const Error& error) {
    throw error.with_context(state.label());
  }
}

int64_t rounds_done(const fs::path& run) {
  const auto file = run / "rounds.jsonl";
  if (!path_exists(file)) return 0;
  const auto text = read_file(file);
  return std::count(text.begin(), text.end(), '\n');
}

uint64_t records_size(const fs::path& run) {
  const auto file = run / "rounds.jsonl";
  return path_exists(file) ? evenkeel::file_size(file) : 0;
}

}  // namespace evenkeel::study
