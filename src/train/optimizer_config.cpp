#include "train/optimizer_config.h"

#include "base/plain/text.h"

namespace evenkeel::train {

/// Refuses values of the other optimiser's keys. Their defaults are accepted, because resolved configs contain them.
void OptimizerConfig::resolve(const config::Table& table) const {
  table.check_above_zero("lr", lr);
  const bool good_betas = betas.size() == 2 && betas[0] >= 0 && betas[0] < 1 && betas[1] >= 0 && betas[1] < 1;
  table.check(good_betas, "betas", concat("[", join(betas), "]"), "two numbers in [0, 1)");
  table.check_above_zero("eps", eps);
  table.check_from_zero("weight_decay", weight_decay);
  table.check(momentum >= 0 && momentum < 1, "momentum", momentum, "a number in [0, 1)");
  if (name == OptimizerName::kSgd) {
    table.check(betas == OptimizerConfig().betas, "betas", concat("[", join(betas), "]"),
                "no value, because name is \"sgd\"");
    table.check(eps == kEps || eps == kPretrainingEps, "eps", eps, "no value, because name is \"sgd\"");
  } else {
    table.check(momentum == 0, "momentum", momentum, "no value, because name is \"adamw\"");
  }
}

}  // namespace evenkeel::train
