/// \file  Prints the scores of `evenkeel evaluate` and writes its predictions.
#pragma once

#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/evaluate_flags.h"
#include "base/plain/log.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::apps {

/// Counts the rows of --data that could not be read or asked, over all tasks.
struct LeftOut {
  int64_t rows = 0;
  std::string note{};

  void add(int64_t count, const std::string& why) {
    rows += count;
    if (count > 0 && note.empty()) note = why;
  }
  void finish() const { EK_CHECK(rows == 0, kData, note, "; --strict refuses them before anything is scored"); }
};

/// Prints scores, as JSON lines when they are computed or as a table at the end, and writes predictions to a file.
class ScoreWriter {
 public:
  explicit ScoreWriter(const EvaluateFlags& flags);

  /// Shows how far a task is. \throws Interrupted when the user asked to stop
  void progress(const std::string& task, double budget, int64_t done, int64_t rows);
  /// Takes a task's score. \throws kIo when the predictions cannot be written
  void score(const scoring::TaskScore& score, std::span<const scoring::Prediction> predictions);
  /// \throws Interrupted with the way to go on
  [[noreturn]] void stop(std::string_view why) const;
  void finish() const;

 private:
  void open_predictions();
  void check_predictions() const;

  bool json_, is_journalled_, has_questions_;
  std::string file_;
  log::Progress progress_;
  std::ofstream predictions_;
  std::vector<scoring::TaskScore> scores_;
};

}  // namespace evenkeel::apps
