#include "report/run_status.h"

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/number_text.h"
#include "base/plain/text.h"
#include "base/system/folder_lock.h"
#include "fed/round/progress.h"
#include "fed/run/best_round.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/stored_config.h"
#include "fed/store/manifest.h"
#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {
namespace {

constexpr size_t kLogTail = 4096;  // bytes at the end of a log in which its last line is searched

/// Returns true if the run is complete. The server of a federation may not evaluate (evenkeel serve --no-evaluation).
bool is_done(const records::RunRecords& run, int64_t rounds) {
  const bool scored = run.last_evaluated() >= rounds || path_exists(run.folder / "federation");
  return static_cast<int64_t>(run.rounds.size()) >= rounds && scored;
}

std::string progress_line(const records::RunRecords& run, int64_t rounds) {
  const auto loss = run.rounds.empty() ? std::nullopt : run.rounds.back().loss;
  const auto last = loss ? concat(", loss ", fixed(*loss, 4)) : "";
  const bool evaluates = static_cast<int64_t>(run.rounds.size()) >= rounds && !is_done(run, rounds);
  return concat(run.method, ", round ", run.rounds.size(), " of ", rounds, last,
                evaluates ? "; the last evaluation is not done\n" : "\n");
}

std::string worker_line(const fs::path& folder, bool done) {
  if (const auto holder = FolderLock::holder(folder)) return concat(*holder, " works on it\n");
  return done ? "done\n" : concat("no process works on it; resume with: ", fed::resume_command(folder), '\n');
}

/// Estimates the remaining time from the mean of the completed rounds, without evaluations.
std::string time_line(const records::RunRecords& run, int64_t rounds) {
  double seconds = 0;
  for (const auto& round : run.rounds) seconds += round.seconds.round;
  const auto left = rounds - static_cast<int64_t>(run.rounds.size());
  if (run.rounds.empty() || left <= 0) return {};
  const double mean = seconds / static_cast<double>(run.rounds.size());
  return concat("about ", fed::readable_duration(mean * static_cast<double>(left)), " of training left, ",
                fed::readable_duration(mean), " a round\n");
}

std::string last_log_line(const fs::path& file) {
  if (!is_file(file)) return {};
  auto text = read_file(file);
  if (text.size() > kLogTail) text.erase(0, text.size() - kLogTail);
  while (text.ends_with('\n')) text.pop_back();
  return text.empty() ? text : concat("log: ", escaped(text.substr(text.rfind('\n') + 1)), '\n');
}

/// Returns the number of clients that have replied in the current round.
std::string arrived_line(const fs::path& folder, size_t rounds_done) {
  const auto uploads = fed::Checkpoint(folder / "checkpoint").uploads(static_cast<int64_t>(rounds_done) + 1);
  const auto entries = entries_if_there(uploads);
  const auto arrived =
      std::count_if(entries.begin(), entries.end(), [](const fs::path& entry) { return entry.extension() == ".json"; });
  return arrived == 0 ? std::string() : concat(arrived, " clients of round ", rounds_done + 1, " have replied\n");
}

}  // namespace

std::string run_status(const fs::path& folder) {
  const auto holder = FolderLock::holder(folder);
  if (!fed::holds_run(folder)) {
    EK_CHECK(holder, kIo, fed::why_no_run(folder));
    return concat("no round yet; ", *holder, " works on it\n");
  }
  const auto run = records::load_run(folder);
  const auto asked = fed::run_config(folder)->train.rounds, rounds = fed::total_rounds(folder, asked);
  const bool by_budget = !run.rounds.empty() && run.rounds.back().privacy && run.rounds.back().privacy->ended_by;
  const auto early = rounds < asked ? concat("it ended early, of ", asked, " rounds (",
                                             by_budget ? "privacy.epsilon" : "train.stop", ")\n")
                                    : std::string();
  return concat(progress_line(run, rounds), early, worker_line(folder, is_done(run, rounds)),
                arrived_line(folder, run.rounds.size()), time_line(run, rounds), last_log_line(folder / "log.txt"));
}

}  // namespace evenkeel::report
