/// \file  Estimates the progress of a study and the time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/files.h"
#include "study/definition/study_folder.h"

namespace evenkeel::study {

/// Reads the progress of this process's runs from their rounds.jsonl. The time left is estimated from finished runs, if
/// possible of the same arm. Before the first run is finished, it is estimated from finished rounds, without
/// evaluations. For one thread.
class StudyProgress {
 public:
  /// \param mine  indices of the runs that this process executes
  /// \param jobs  number of runs at the same time
  StudyProgress(const Study& study, std::span<const size_t> mine, int64_t jobs);

  /// Records that a run has begun. \param run  index in study.state.runs
  void begin(size_t run);
  /// Records that a run has ended.
  /// \param seconds  time of the whole run when it is done; empty when it failed or was stopped
  void end(size_t run, std::optional<double> seconds);
  /// Reads how many rounds are done. \return true if any run has finished another round
  bool poll();
  /// Returns a line like "fedit:1 round 2/3; 1 of 6 runs done, about 40 s left".
  std::string text() const;
  /// Returns the seconds left for all runs of this process; empty before the first round.
  std::optional<double> seconds_left() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct AtWork {
    Clock::time_point since{};
    int64_t before = 0, done = 0;  ///< rounds
    uint64_t bytes = 0;            ///< of rounds.jsonl when it was read
  };
  std::optional<double> run_seconds(size_t run) const;
  std::optional<double> seconds_of_round() const;
  double left_of(size_t run, double seconds) const;

  std::vector<std::string> labels_, arms_;
  std::vector<fs::path> folders_;
  std::vector<int64_t> rounds_;        // of each run in all
  std::map<size_t, int64_t> waiting_;  // run -> rounds done
  std::map<size_t, AtWork> at_work_;
  std::map<std::string, std::vector<double>> finished_;  // by arm, seconds
  size_t all_ = 0, done_ = 0;
  int64_t jobs_;
};

}  // namespace evenkeel::study
