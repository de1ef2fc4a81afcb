/// \file  Opens the last committed round of a run to measure gradients on test rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/example.h"
#include "fed/run/experiment.h"

namespace evenkeel::fed {

/// The run to open, and the rows and the device to measure with.
struct MeasuredRunOptions {
  std::filesystem::path folder{};
  int64_t limit = 0;     ///< number of test rows of each evaluation task; 0: all
  std::string data{};    ///< folder of the tasks' files; empty: the run's folder
  std::string device{};  ///< value of the option --device; empty: the run's device
  std::string base{};    ///< folder of a base model that was moved; empty: it was not
};

/// A run with the state of its last committed round.
struct MeasuredRun {
  Experiment experiment;
  methods::ServerState state;
  std::vector<data::Example> rows;  ///< test rows of all evaluation tasks, tokenised as training rows
};

/// Opens a run. Does not write into its folder. \throws as config_with_base(); kConfig, kData, kCheckpoint as
/// make_experiment()
MeasuredRun open_measured_run(const MeasuredRunOptions& options);

/// Returns the adapters and router options of an evaluation client of `budget`.
methods::LocalSetup setup_at(const Experiment& experiment, const methods::ServerState& state, double budget);

}  // namespace evenkeel::fed
