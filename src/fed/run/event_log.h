/// \file  Writes the TensorBoard event file of a run, RUN/tensorboard/events.out.tfevents.evenkeel, if
/// report.tensorboard is true. The file can be read while the run continues.
#pragma once

#include <filesystem>
#include <string>

#include "base/format/event_file.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {

/// Appends the scalars of rounds and scores to the event file of a run. The step is the round. Tags of a round are
/// train/loss, train/tokens, ..., traffic/bytes_up, ..., experts/entropy, ..., privacy/epsilon, metrics/NAME. The tag
/// of a score is evaluate/TASK/budget BUDGET/MEASURE, with " mode a" or " mode b" after the budget for rank methods.
/// Tags of scores of the exported adapter begin with exported/PROGRAM/ instead of evaluate/, where PROGRAM names the
/// ServedBy. Scores of single clients are left out.
class EventLog {
 public:
  /// Brings the file of a run folder up to date: adds records that it does not have. If the file is damaged, or has
  /// rounds or scores that the run has since discarded, it is replaced by a new one.
  /// \param wanted  false: nothing is ever written
  /// \throws kIo when the file cannot be written; kCheckpoint when the run's records are damaged
  EventLog(std::filesystem::path folder, bool wanted);

  /// Appends the scalars of a record. Does nothing unless `wanted`. \throws kIo when the file cannot be written
  void add(const RoundRecord& round);
  void add(const EvaluationRecord& evaluation);

 private:
  void append(const ScalarEvent& event) const;

  std::filesystem::path file_;
  bool wanted_;
};

}  // namespace evenkeel::fed
