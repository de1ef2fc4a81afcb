#include "train/make_optimizer.h"

#include <utility>

#include "train/sgd.h"

namespace evenkeel::train {

std::unique_ptr<Optimizer> make_optimizer(std::vector<at::Tensor> parameters, const OptimizerConfig& config,
                                          nn::EngineKind engine) {
  if (config.name == OptimizerName::kSgd) return std::make_unique<Sgd>(std::move(parameters), config);
  return std::make_unique<AdamW>(std::move(parameters), config, engine);
}

}  // namespace evenkeel::train
