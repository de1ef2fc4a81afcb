/// \file  Estimates the time of a run without loading its weights, for models that are too large to be loaded and
/// measured. The work of the run is counted in FLOPs (models/cost.h) and divided by the speed of a matrix product. Not
/// thread-safe.
#pragma once

#include <filesystem>
#include <map>

#include "fed/run/run_forecast.h"

namespace evenkeel::fed {

/// Returns true if the weight files of a model have more than 2 GiB in all. To read them takes minutes, so a forecast
/// does not measure the speed with them. \throws kIo when the folder cannot be read
bool is_too_large_to_measure(const std::filesystem::path& model_folder);

/// Returns the same work as work_of() (fed/run/run_forecast.h), without weights. Which points are evaluated depends on
/// the method's first state. Here that state is made for sites of one input and one output, which need no memory.
/// \param dry_run  an experiment of Purpose::kDryRun: with rows, without weights; its sites are replaced during the
/// call
RunWork counted_work(Experiment& dry_run);

/// The FLOPs of one trained token and of one scored row.
struct RunFlops {
  std::map<int64_t, double> per_trained_token;  ///< by K; a forward and a backward pass
  /// A forward pass, mean over all test rows and evaluate.budgets. A row counts with the tokens of its prompt, or with
  /// all its tokens if its likelihood is the score. Lengths are measured on the first 32 rows of each task.
  double per_scored_row = 0;
};
/// Computes the FLOPs from the shapes of the model and the lengths of the rows.
/// \param dry_run  as for counted_work()
RunFlops run_flops(const Experiment& dry_run);
/// Returns the FLOPs of all training and scoring of a run. REQUIRES `flops` of at least one K.
double foreseen_flops(const RunWork& work, const RunFlops& flops);

/// Returns the speeds of a run that computes all its FLOPs at the speed of a large matrix product, with no time to
/// start. They are an estimate, not a bound. A real run is slower, because memory accesses, small matrix products and
/// the start take time. It can be faster, because models/cost.h counts a common prefix in each prompt and the full
/// square of attention, while the program computes the prefix once and half of the square.
/// \param product_speed  FLOP/s (fed/run/product_speed.h)
RunSpeeds computed_speeds(const RunFlops& flops, double product_speed);

}  // namespace evenkeel::fed
