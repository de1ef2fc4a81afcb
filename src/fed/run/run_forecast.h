/// \file  Estimates the time and the disk space that a run needs. Tokens, rows and points of evaluation are counted;
/// the speed of training and the time of a scored row are measured on this machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "fed/run/experiment.h"
#include "methods/protocol.h"

namespace evenkeel::fed {

/// Bytes that a run writes into its folder.
struct DiskNeeds {
  int64_t kept = 0;     ///< the adapter and two rounds; with evaluate.keep_best also the best adapter and two states
  int64_t passing = 0;  ///< in addition, while it runs: the uploads of two rounds and a file that is being written
};
/// Estimates the disk space from the factors only. The larger state of some methods, records and the page are not
/// counted. The model may be without weights.
DiskNeeds disk_needs(const Experiment& experiment);

/// Returns the number of rows that an evaluation scores, by task.
std::map<std::string, double> test_row_counts(const RunConfig& config);

/// The work of a run.
struct RunWork {
  std::map<int64_t, double> tokens;  ///< tokens of the training, by K
  double scored_rows = 0;            ///< rows x points x evaluations
};
/// Counts the work of all rounds; a run that ends early (train.stop) does less.
/// \param state  the state before the first round
RunWork work_of(const Experiment& experiment, const methods::ServerState& state);

/// Speeds of this machine: measured (foresee_run()), or computed (fed/run/computed_speed.h).
struct RunSpeeds {
  std::map<int64_t, double> tokens_per_second;  ///< speed of training, by K
  double seconds_per_row = 0;                   ///< seconds per scored row
  double seconds_to_start = 0;                  ///< seconds to build the run and load its model
};
/// The work of a run and the speeds of this machine.
struct RunForecast {
  RunWork work;
  RunSpeeds speeds;
};
/// Builds a run, counts its work and measures its speeds. Cost: the time to load it, half a second of training per K,
/// and a few rows of every task at every point. \throws as make_experiment()
RunForecast foresee_run(const RunConfig& config);

/// Returns the seconds that a server whose clients are nodes takes to start and to score `scored_rows` rows itself.
/// Measures a few rows of every task at every point. Returns nullopt for a method whose first state needs the clients'
/// rows. \throws as make_experiment()
std::optional<double> measured_scoring_seconds(const RunConfig& config, double scored_rows);

/// Returns the value at `top_k`, or else at the next larger key, or else at the largest key. REQUIRES a value.
double at_top_k(const std::map<int64_t, double>& values, int64_t top_k);

/// Returns the wall time of a run in seconds, including the start and the end of a process.
double foreseen_seconds(const RunWork& work, const RunSpeeds& speeds);

}  // namespace evenkeel::fed
