#include "train/optimizer_config.h"

namespace evenkeel::train {

void OptimizerConfig::resolve(const config::Table& table) const {
  table.check(name == "adamw", "name", concat("\"", name, "\""), "adamw");
  table.check_above_zero("lr", lr);
  const bool good_betas = betas.size() == 2 && betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1;
  table.check(good_betas, "betas", concat("[", join(betas), "]"), "two numbers in [0, 1)");
  table.check_above_zero("eps", eps);
  table.check_from_zero("weight_decay", weight_decay);
}

}  // namespace evenkeel::train
