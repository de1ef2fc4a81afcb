/// \file  Executes runs of a study as child processes, reads their error lines, and records their states in study.json.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/log.h"
#include "study/definition/job_slots.h"
#include "study/running/child_process.h"
#include "study/running/study_progress.h"

namespace evenkeel::study {

/// Starts runs of a study and records how they end. For one thread.
class RunQueue {
 public:
  /// \param mine  indices of the runs of this process in study.state.runs, in the order of execution
  /// \param slots  places of concurrent runs, all free
  /// \param methods  FILE:CLASS of methods in Python, by name
  RunQueue(Study study, std::vector<size_t> mine, JobSlots slots, std::map<std::string, std::string> methods = {});

  /// Starts runs that are not done until every slot is taken or no run is left.
  void fill();
  /// Polls the child processes: forwards their warnings, records the runs that have ended, and shows the progress.
  void poll();
  /// Prevents further starts, and asks the running runs to save their state and end.
  void stop();
  /// Returns true after stop() once the last running run has ended.
  bool stopped() const { return stopping_ && at_work_.empty(); }
  /// Returns true if no run is running or left to start.
  bool empty() const { return at_work_.empty() && next_ >= mine_.size(); }
  /// Returns a line as StudyProgress::text().
  std::string summary() const { return progress_.text(); }

 private:
  struct Worker {
    ChildProcess process;
    size_t slot;
    std::chrono::steady_clock::time_point since;
    std::string error{};  // the last line of an error
  };
  void start(size_t run, size_t slot);
  void read_output(size_t run, Worker& worker);
  void ended(size_t run, const Worker& worker, int code);
  void record(size_t run, RunState state, double seconds, const std::string& error);
  std::vector<std::string> words_of(size_t run) const;
  std::vector<std::string> method_words(const fed::MethodSection& section) const;

  Study study_;
  std::vector<size_t> mine_;
  JobSlots slots_;
  std::map<std::string, std::string> methods_;
  size_t next_ = 0;
  bool stopping_ = false;
  std::map<size_t, Worker> at_work_;
  StudyProgress progress_;
  log::Progress line_{"[study]", 0};  // every round is a line, where there is no terminal
};

}  // namespace evenkeel::study
