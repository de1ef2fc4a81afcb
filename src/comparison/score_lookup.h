/// \file  Finds the scores of a study's runs by arm, seed, budget and task.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"
#include "fed/store/round_records.h"
#include "records/run_settings.h"
#include "scoring/measures.h"

namespace evenkeel::comparison {

/// An arm in one rank evaluation mode and one way of serving.
struct Aspect {
  std::string arm;             ///< name of the arm
  std::string rank_eval_mode;  ///< rank evaluation mode, "a" or "b"; empty: the method has none
  scoring::ServedBy served_by = scoring::ServedBy::kRun;
};

/// The scores of the last evaluated round of every run, read once. If a run has no scores of an exported adapter, other
/// programs compute the same as the run, so its own scores are used for every way of serving (docs/serving.md).
class ScoreLookup {
 public:
  /// \param study  borrowed; it must outlive this object
  /// \param with_items  also read the scores of single rows
  explicit ScoreLookup(const StudyRuns& study, bool with_items = true);

  /// Return the scores of all runs, or of the runs of one arm.
  const std::vector<scoring::TaskScore>& all() const { return all_; }
  std::vector<scoring::TaskScore> of_arm(const std::string& arm) const;
  /// Returns a measure of a task; nothing if it is not measured or if rows of some clients are missing.
  std::optional<double> value(const Aspect& aspect, int64_t seed, double budget, const std::string& task,
                              const scoring::Measure& measure) const;
  /// Returns the mean of value() over tasks; nothing unless all tasks have it.
  std::optional<double> mean(const Aspect& aspect, int64_t seed, double budget, const std::vector<std::string>& tasks,
                             const scoring::Measure& measure) const;
  /// Returns the values of the single rows of a task; none if they are not recorded. Scores of one client do not count.
  std::vector<double> items(const Aspect& aspect, int64_t seed, double budget, const std::string& task,
                            const scoring::Measure& measure) const;
  /// Returns the way of serving whose scores stand for an aspect: the run's own if no exported adapter was scored.
  scoring::ServedBy served_in(const Aspect& aspect) const;
  /// Returns true if evaluate.as_exported was false in a run of this arm, so that its own scores cannot stand in.
  bool has_no_exports(const std::string& arm) const;
  /// Returns a setting or a file by which the runs of two arms score different test rows; nothing if they score the
  /// same rows, or if a run or its items are missing.
  std::optional<std::string> unlike_rows(const std::string& arm, const std::string& other, int64_t seed) const;

 private:
  struct Run {
    const ArmRun* run;
    std::vector<scoring::TaskScore> scores;
    std::vector<fed::ItemRecord> items;
    config::Values test_rows;  ///< read if there are items
  };
  const Run* find(const std::string& arm, int64_t seed) const;
  static scoring::ServedBy served_in(const Run& run, const Aspect& aspect);

  std::vector<Run> runs_;
  std::vector<scoring::TaskScore> all_;
};

/// Returns the tasks that have a measure, in order of appearance.
std::vector<std::string> tasks_with(std::span<const scoring::TaskScore> scores, const scoring::Measure& measure);

}  // namespace evenkeel::comparison
