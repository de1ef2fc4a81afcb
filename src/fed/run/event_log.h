/// \file  Writes what TensorBoard shows of a run: RUN/tensorboard/events.out.tfevents.evenkeel, if report.tensorboard
/// is true. The file can be read while the run goes on.
#pragma once

#include <filesystem>
#include <string>

#include "base/format/event_file.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {

/// Appends the scalars of rounds and scores to the event file of a run. The step is the round. Tags of a round:
/// train/loss, train/tokens, ..., traffic/bytes_up, ..., experts/entropy, ..., metrics/NAME; of a score:
/// evaluate/TASK/budget BUDGET/MEASURE, with " mode a" and " exported NAME" after the budget where they apply. Scores
/// of single clients are left out.
class EventLog {
 public:
  /// Brings the file of a run folder up to date: adds records that it does not have. The file is written anew if it is
  /// damaged, or has more rounds or scores than the folder because rounds were taken back.
  /// \param wanted  false: nothing is ever written
  /// \throws kIo when the file cannot be written; kCheckpoint when the run's records are damaged
  EventLog(std::filesystem::path folder, bool wanted);

  void add(const RoundRecord& round);
  void add(const EvaluationRecord& evaluation);

 private:
  void append(const ScalarEvent& event) const;

  std::filesystem::path file_;
  bool wanted_;
};

}  // namespace evenkeel::fed
