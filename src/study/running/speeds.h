/// \file  How fast this machine trains and scores the model of a study: measured, or computed from FLOPs.
#pragma once

#include <filesystem>
#include <string>

#include "fed/run/run_forecast.h"

namespace evenkeel::study {

/// Speeds of this machine on one model.
struct Speeds {
  fed::RunSpeeds speeds;
  bool are_upper_bounds = false;  ///< real runs are slower
  std::string basis;              ///< their source, as in "measured with arm fedit"
};

/// Returns true if the weights of a model are so large that they are not loaded for a forecast.
bool is_large(const std::filesystem::path& model_folder);

/// Trains and scores for some seconds. \param arm  name of the arm, for Speeds::basis
Speeds measured_speeds(const fed::ExperimentConfig& config, const std::string& arm);

/// Divides FLOPs (models/cost.h) by the speed of a float32 matrix product on the device of the run, measured in less
/// than a second. Real runs are slower: memory, small products and the start are not counted.
/// \param dry_run  an experiment without weights, with rows
Speeds computed_speeds(const fed::Experiment& dry_run);

}  // namespace evenkeel::study
