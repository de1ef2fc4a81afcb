/// \file  Makes the optimiser that a config names.
#pragma once

#include <memory>
#include <vector>

#include "train/optimizer.h"

namespace evenkeel::train {

/// Makes the optimiser `config.name` for parameters as Optimizer requires them.
/// \param engine  kAten: works on any device without synchronising. SGD does so with both engines.
std::unique_ptr<Optimizer> make_optimizer(std::vector<at::Tensor> parameters, const OptimizerConfig& config,
                                          nn::EngineKind engine = nn::EngineKind::kKernels);

}  // namespace evenkeel::train
