/// \file  Foresees what the runs of a study need: time, memory and disk.
#pragma once

#include <cstdint>
#include <string>

#include "study/running/run_study.h"

namespace evenkeel::study {

/// What the runs of one command need.
struct Forecast {
  int64_t runs = 0;     ///< left to make
  double seconds = 0;   ///< of all of them, `jobs` at once
  int64_t memory = 0;   ///< bytes of the largest run (fed/run/memory_estimate.h)
  int64_t disk = 0;     ///< bytes that all of them leave, and the temporary files of those at work
  int64_t threads = 1;  ///< processor threads of a run
};

/// Foresees the runs that are left. The speed of training and the time of a scored row are measured with the reference
/// arm, in some seconds; tokens, rows and points of evaluation are counted for every arm. Disk: adapters, two
/// checkpoints, and the uploads of a round.
Forecast foresee(const StudyCommand& command, const StudyTask& task);

/// Returns the forecast as lines for people, with the line that submits a job array to Slurm.
std::string forecast_text(const StudyCommand& command, const StudyTask& task, const Forecast& forecast);

/// Returns the command that submits the study as a Slurm job array of `tasks` tasks.
std::string array_command(const StudyCommand& command, const StudyTask& task, const Forecast& forecast, int64_t tasks);

}  // namespace evenkeel::study
