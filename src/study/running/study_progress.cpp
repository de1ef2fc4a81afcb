#include "study/running/study_progress.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/plain/clock.h"
#include "fed/round/progress.h"
#include "study/running/run_check.h"

namespace evenkeel::study {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

StudyProgress::StudyProgress(const Study& study, std::span<const size_t> mine, int64_t jobs)
    : all_(mine.size()), jobs_(jobs) {
  for (size_t i = 0; i < study.runs.size(); ++i) {
    const auto& run = study.state.runs[i];
    labels_.push_back(run.label());
    arms_.push_back(run.arm);
    folders_.push_back(study.folder / run.folder);
    rounds_.push_back(study.runs[i].config->train.rounds);
    if (run.state == RunState::kDone && run.seconds) finished_[run.arm].push_back(*run.seconds);
  }
  for (const size_t run : mine)
    if (study.state.runs[run].state == RunState::kDone)
      ++done_;
    else
      waiting_[run] = rounds_done(folders_[run]);
}

void StudyProgress::begin(size_t run) {
  const int64_t done = rounds_done(folders_[run]);
  waiting_.erase(run);
  at_work_[run] = {Clock::now(), done, done};
}

void StudyProgress::end(size_t run, std::optional<double> seconds) {
  at_work_.erase(run);
  if (!seconds) return;
  finished_[arms_[run]].push_back(*seconds);
  ++done_;
}

bool StudyProgress::poll() {
  bool more = false;
  for (auto& [run, work] : at_work_) {
    const uint64_t bytes = records_size(folders_[run]);
    if (bytes == std::exchange(work.bytes, bytes)) continue;
    const int64_t done = rounds_done(folders_[run]);
    more = more || done > work.done;
    work.done = std::max(work.done, done);
  }
  return more;
}

/// Returns the mean seconds of a round, without evaluations.
std::optional<double> StudyProgress::seconds_of_round() const {
  double seconds = 0;
  int64_t rounds = 0;
  for (const auto& [run, work] : at_work_) {
    if (work.done == work.before) continue;
    seconds += seconds_since(work.since);
    rounds += work.done - work.before;
  }
  return rounds > 0 ? std::optional(seconds / static_cast<double>(rounds)) : std::nullopt;
}

/// Returns the seconds of a whole run: the mean of finished runs of its arm, else of all arms, else from its rounds.
std::optional<double> StudyProgress::run_seconds(size_t run) const {
  if (const auto same = finished_.find(arms_[run]); same != finished_.end()) return mean(same->second);
  std::vector<double> means;
  for (const auto& [arm, seconds] : finished_) means.push_back(mean(seconds));
  if (!means.empty()) return mean(means);
  const auto round = seconds_of_round();
  return round ? std::optional(*round * static_cast<double>(rounds_[run])) : std::nullopt;
}

double StudyProgress::left_of(size_t run, double seconds) const {
  const auto work = at_work_.find(run);
  const int64_t before = work == at_work_.end() ? waiting_.at(run) : work->second.before;
  const double share = 1 - static_cast<double>(before) / static_cast<double>(rounds_[run]);
  const double worked = work == at_work_.end() ? 0 : seconds_since(work->second.since);
  return std::max(0.0, seconds * share - worked);
}

std::optional<double> StudyProgress::seconds_left() const {
  double all = 0, longest = 0;
  std::vector<size_t> runs;
  for (const auto& [run, work] : at_work_) runs.push_back(run);
  for (const auto& [run, rounds] : waiting_) runs.push_back(run);
  for (const size_t run : runs) {
    const auto seconds = run_seconds(run);
    if (!seconds) return std::nullopt;
    const double left = left_of(run, *seconds);
    all += left;
    longest = std::max(longest, left);
  }
  return std::max(longest, all / static_cast<double>(jobs_));
}

std::string StudyProgress::text() const {
  std::vector<std::string> runs;
  for (const auto& [run, work] : at_work_)
    runs.push_back(concat(labels_[run], " round ", work.done, "/", rounds_[run]));
  const auto left = seconds_left();
  return concat(join(runs), runs.empty() ? "" : "; ", done_, " of ", all_, " runs done",
                left ? concat(", about ", fed::readable_duration(*left), " left") : "");
}

}  // namespace evenkeel::study
