/// \file  Defines the optimiser and its hyperparameters: the config section `optimizer`.
#pragma once

#include <array>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::train {

enum class OptimizerName { kAdamW, kSgd };
constexpr auto names(OptimizerName) {
  return std::array{config::EnumName<OptimizerName>{"adamw", OptimizerName::kAdamW},
                    config::EnumName<OptimizerName>{"sgd", OptimizerName::kSgd}};
}

inline constexpr double kEps = 1e-5;             ///< default of eps in federated training
inline constexpr double kPretrainingEps = 1e-8;  ///< default of eps in pre-training

/// Hyperparameters of an optimiser. The texts of visit() explain each.
struct OptimizerConfig {
  OptimizerName name = OptimizerName::kAdamW;
  double lr = 2e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = kEps;
  double weight_decay = 0.01;
  double momentum = 0;
  void visit(auto& field) {
    field("name", name, "optimiser: adamw (torch.optim.AdamW) or sgd (torch.optim.SGD)");
    field("lr", lr, "learning rate before any schedule, > 0");
    field("betas", betas, "adamw: decay rates of the first and second moment, each in [0, 1)");
    field("eps", eps, "adamw: added to the root of the second moment, > 0");
    field("weight_decay", weight_decay,
          "weight decay, 0 or more: adamw shrinks a factor by lr times this, sgd adds this times the factor to its "
          "gradient");
    field("momentum", momentum, "sgd: part of the last step's direction that is kept, in [0, 1)");
  }
  void resolve(const config::Table& table) const;
};

}  // namespace evenkeel::train
