/// \file  Counts the work of a run without its weights, and computes how fast this machine can do it: FLOPs
/// (models/cost.h) divided by the speed of a matrix product. For models that are too large to be loaded and measured.
#pragma once

#include <filesystem>
#include <map>

#include "fed/run/run_forecast.h"

namespace evenkeel::fed {

/// Returns true if the weights of a model are so large that they are not loaded for a forecast.
bool is_large(const std::filesystem::path& model_folder);

/// Counts the work of a run as work_of(experiment, state), which needs weights for the state.
/// \param dry_run  an experiment without weights, with rows; unchanged afterwards
RunWork counted_work(Experiment& dry_run);

/// FLOPs of a unit of work.
struct RunFlops {
  std::map<int64_t, double> of_token;  ///< that is trained on, by K; forward and backward
  double of_row = 0;  ///< that is scored, mean over rows and budgets; its prompt, or the row where that is the score
};
/// Computes the FLOPs from the shapes of the model and the lengths of the rows.
/// \param dry_run  an experiment without weights, with rows
RunFlops run_flops(const Experiment& dry_run);
/// Returns the FLOPs of all training and scoring.
double foreseen_flops(const RunWork& work, const RunFlops& flops);

/// Returns the speeds of a run whose FLOPs are all as fast as a large product. They are an estimate and no limit.
/// Memory, small products and the start make a real run slower. It may be faster too, because FLOPs are counted by a
/// convention (models/cost.h): beginnings that prompts share are computed once, and half of the square of attention.
/// \param product_speed  FLOP/s (fed/run/product_speed.h)
RunSpeeds computed_speeds(const RunFlops& flops, double product_speed);

}  // namespace evenkeel::fed
