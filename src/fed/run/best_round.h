/// \file  Finds the best round of a run and ends a run whose scores no longer improve (fed/config/early_stopping.h).
/// Both follow from evaluations.jsonl alone, so a resumed run decides as an uninterrupted run does.
///
/// Files in a run folder:
///   best.json          sealed: the values of the evaluated rounds, the best of them, and why the run ended early
///   best/              with evaluate.keep_best: the adapter of the best round in PEFT's layout
///   checkpoint/best/   with evaluate.keep_best: the state of the best round, and of the best of all rounds but the
///                      last, in case the run goes back by one round; laid out like `checkpoint/`
///                      (fed/store/run_checkpoint.h)
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fed/round/server.h"
#include "fed/run/run_folder.h"

namespace evenkeel::fed {

/// The value of an evaluated round: the mean of its scores that `[evaluate.best]` selects.
struct RoundValue {
  int64_t round = 0;  ///< rounds done, 1 or more
  double value = 0;

  bool operator==(const RoundValue&) const = default;
  void visit(auto& field) {  // base/format/record.h, as all below
    field("round", round);
    field("value", value);
  }
};

/// Why a run ended before train.rounds.
struct EarlyStop {
  int64_t round = 0, rounds = 0;  ///< the last round, and train.rounds
  int64_t patience = 0;
  double min_delta = 0;

  void visit(auto& field) {
    field("round", round);
    field("rounds", rounds);
    field("patience", patience);
    field("min_delta", min_delta);
  }
};

/// The content of best.json.
struct BestRound {
  scoring::MeasureName measure{};
  double budget = 0;
  std::vector<std::string> tasks;  ///< the tasks that were compared
  int64_t round = 0;               ///< the best round, the earliest among equals
  double value = 0;                ///< value of the best round
  bool kept = false;               ///< true: its adapter is in best/
  std::vector<RoundValue> evaluated;
  std::optional<EarlyStop> stopped;  ///< nullopt: the run has not ended early

  void visit(auto& field) {
    field("measure", measure);
    field("budget", budget);
    field("tasks", tasks);
    field("round", round);
    field("value", value);
    field("kept", kept);
    field("evaluated", evaluated);
    field("stopped", stopped);
  }
};

/// Computes the values of all evaluated rounds, in round order. The evaluation before the first round does not count,
/// and neither does a round whose scores are not complete.
/// \param tasks  the tasks that the run scores
/// \param modes  the run's rank evaluation modes; {""} if it has none
std::vector<RoundValue> round_values(const RunConfig& config, const std::vector<std::string>& tasks,
                                     const std::vector<std::string>& modes,
                                     std::span<const EvaluationRecord> evaluations);

/// Returns true if the rule ends a run after the last of `values`: the last `patience` values are no gain. A gain is a
/// value that is better than the last gain by more than `min_delta`. The first value is a gain.
bool has_stalled(const StopSection& stop, const scoring::Measure& measure, std::span<const RoundValue> values);

/// Reads best.json. Returns nullopt if the folder has none. \throws kCheckpoint when it is damaged
std::optional<BestRound> read_best(const std::filesystem::path& folder);
/// Returns the total number of rounds of the run in `folder`, done or not: train.rounds, or fewer if it ended early.
int64_t total_rounds(const std::filesystem::path& folder, int64_t rounds);
/// Reads the state of the best round. \throws kIo when the run keeps none; kCheckpoint when it is damaged
CommittedRound read_best_state(const std::filesystem::path& folder);

/// Keeps best.json, best/ and checkpoint/best/ of a run up to date. Does nothing unless
/// ExperimentConfig::seeks_best().
class BestRoundKeeper {
 public:
  BestRoundKeeper(const Server& server, const RunFolder& folder) : server_(server), folder_(folder) {}

  /// Compares the rounds evaluated so far. Call it when a run begins or is resumed, and after every evaluation.
  /// \param now  the state of the last committed round
  /// \return why the run ends now, before train.rounds; nullopt if it continues
  std::optional<std::string> update(const methods::ServerState& now);

 private:
  BestRound found(const std::vector<RoundValue>& values, int64_t round) const;
  bool keep(int64_t best, const methods::ServerState& now);
  void forget() const;

  const Server& server_;
  const RunFolder& folder_;
  int64_t written_ = -1;  // the round whose adapter this process has written into best/
};

}  // namespace evenkeel::fed
