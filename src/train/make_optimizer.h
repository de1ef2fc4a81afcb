/// \file  Makes the optimiser that a config names.
#pragma once

#include <memory>
#include <vector>

#include "train/optimizer.h"

namespace evenkeel::train {

/// Makes the optimiser `config.name`. The parameters must be as Optimizer requires.
/// \param engine  kKernels: CPU only; kAten: any device, without synchronising. SGD always computes as with kAten.
std::unique_ptr<Optimizer> make_optimizer(std::vector<at::Tensor> parameters, const OptimizerConfig& config,
                                          nn::EngineKind engine = nn::EngineKind::kKernels);

}  // namespace evenkeel::train
