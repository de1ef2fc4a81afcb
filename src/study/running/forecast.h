/// \file  Estimates the time, memory and disk that the runs of a study need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "study/running/dry_runs.h"

namespace evenkeel::study {

/// Estimated needs of the runs of one command.
struct Forecast {
  int64_t runs = 0;  ///< runs that are not done
  /// Time of all these runs, StudyTask::slots at the same time; empty if they need a GPU and this machine has none.
  std::optional<double> seconds = 0;
  int64_t memory = 0;     ///< bytes of the largest run (fed/run/memory_estimate.h)
  int64_t disk = 0;       ///< bytes of the files of all runs, and of the temporary files of concurrent runs
  int64_t threads = 1;    ///< processor threads of a run
  bool by_flops = false;  ///< `seconds` is computed from FLOPs (fed/run/computed_speed.h), not measured
  std::string basis{};    ///< source of `seconds`, as in "measured with arm fedit"
  double flops = 0;       ///< of training and scoring, all runs (docs/methods.md)
};

/// Estimates the runs that are not done. The speed of training and the time of a scored row come from the reference
/// arm. They are measured, or for a large model computed from FLOPs (fed/run/computed_speed.h). Tokens, rows and points
/// of evaluation are counted for every arm. Disk covers adapters, two checkpoints, and the uploads of a round.
/// \param dry_runs  made from `task`
Forecast foresee(const StudyTask& task, DryRuns& dry_runs);

/// Formats the forecast as text lines, with the command that submits a job array to Slurm.
std::string forecast_text(const StudyCommand& command, const StudyTask& task, const Forecast& forecast);

/// Returns a text such as "by FLOPs, at 1.2 TFLOP/s of a large product here", which follows a computed time.
/// \param product_speed  FLOP/s of a large matrix product
std::string basis_of_flops(double product_speed);
/// Formats a time. Times of more than two days are given in days.
std::string time_text(double seconds);

/// Returns the command that submits the study as a Slurm job array of `tasks` tasks.
std::string array_command(const StudyCommand& command, const StudyTask& task, const Forecast& forecast, int64_t tasks);

}  // namespace evenkeel::study
