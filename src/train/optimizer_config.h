/// \file  Defines the hyperparameters of AdamW: the config section `optimizer`.
#pragma once

#include <string>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::train {

/// Hyperparameters of AdamW. The texts of visit() explain each.
struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 2e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-5;
  double weight_decay = 0.01;
  void visit(auto& field) {
    field("name", name, "optimiser: adamw");
    field("lr", lr, "learning rate before any schedule, > 0");
    field("betas", betas, "decay rates of the first and second moment, each in [0, 1)");
    field("eps", eps, "added to the root of the second moment, > 0");
    field("weight_decay", weight_decay, "decoupled weight decay, multiplied by lr, 0 or more");
  }
  void resolve(const config::Table& table) const;
};

}  // namespace evenkeel::train
