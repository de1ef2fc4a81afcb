/// \file  Says in one sentence what a config protects.
#pragma once

#include <string>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// Returns who is protected against whom by [privacy] and [secure_aggregation], and what is not; without a full stop.
std::string privacy_guarantee(const ExperimentConfig& config);

}  // namespace evenkeel::fed
