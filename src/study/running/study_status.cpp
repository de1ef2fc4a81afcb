#include "study/running/study_status.h"

#include <sstream>

#include "base/plain/files.h"
#include "base/system/folder_lock.h"
#include "fed/round/progress.h"
#include "study/running/run_check.h"

namespace evenkeel::study {
namespace {

/// Returns the word for a run's state. A run that study.json calls running may have been killed.
std::string_view word_for(const StudyRun& run, const fs::path& folder) {
  const bool works = FolderLock::holder(folder).has_value();
  if (run.state == RunState::kRunning && !works) return "stopped";
  return config::name_of(run.state);
}

std::string run_line(const StudyRun& run, const fs::path& folder) {
  std::ostringstream line;
  line << run.label() << "  " << word_for(run, folder);
  if (run.state == RunState::kDone && run.seconds) line << " in " << fed::readable_duration(*run.seconds);
  if (run.state == RunState::kFailed) line << ": " << run.error.value_or("");
  const int64_t rounds = rounds_done(folder);
  if (run.state != RunState::kDone && rounds > 0) line << ", round " << rounds;
  return line.str();
}

}  // namespace

std::string study_status(const fs::path& folder) {
  const auto state = read_state(folder);
  std::ostringstream text;
  text << "study " << state.name << ": " << state.count(RunState::kDone) << " of " << state.runs.size()
       << " runs done, " << state.count(RunState::kFailed) << " failed\n";
  for (const auto& run : state.runs) text << run_line(run, folder / run.folder) << '\n';
  return text.str();
}

}  // namespace evenkeel::study
