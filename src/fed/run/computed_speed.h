/// \file  Counts the work of a run without its weights, and computes how fast this machine can do it: FLOPs
/// (models/cost.h) divided by the speed of a matrix product. For models that are too large to be loaded and measured.
#pragma once

#include <c10/core/Device.h>

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
  double of_row = 0;                   ///< that is scored, mean over tasks and budgets
};
/// Computes the FLOPs from the shapes of the model and the lengths of the rows.
/// \param dry_run  an experiment without weights, with rows
RunFlops run_flops(const Experiment& dry_run);
/// Returns the FLOPs of all training and scoring.
double foreseen_flops(const RunWork& work, const RunFlops& flops);

/// Measures the speed of a matrix product in FLOP/s, for half a second. A product of float32, or one of bfloat16 where
/// it is faster and the run may compute so.
double product_speed(c10::Device device, bool may_round);
/// Measures the speed of a product with the device and the arithmetic of a run.
double product_speed(const ModelSection& model);

/// Returns the speeds of a run that does nothing but products. Real runs are slower: memory, small products and the
/// start are not counted.
RunSpeeds computed_speeds(const RunFlops& flops, double product_speed);

}  // namespace evenkeel::fed
