#include "train/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace evenkeel::train {

void RateSchedule::resolve(const config::Table& table) const {
  table.check_integer("warmup_rounds", warmup, 0, limits::kSteps);
  table.check_share("final_ratio", final_ratio);
}

double RateSchedule::at(int64_t step, int64_t steps) const {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (kind == RateKind::kConstant) return 1;
  const double done =
      std::min(static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(steps - 1 - warmup, 1)), 1.0);
  const double left = kind == RateKind::kLinear ? 1 - done : 0.5 * (1 + std::cos(std::numbers::pi * done));
  return final_ratio + (1 - final_ratio) * left;
}

}  // namespace evenkeel::train
