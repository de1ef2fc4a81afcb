#include "fed/round/update_bounds.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/lower_median.h"

namespace evenkeel::fed {
namespace {

/// The medians of a round.
struct Medians {
  double moved = 0, per_step = 0;
};

Medians medians_of(std::span<const UpdateSize> sizes) {
  if (sizes.size() < kMajority) return {};
  std::vector<double> moved, per_step;
  for (const auto& size : sizes) {
    moved.push_back(std::isfinite(size.moved) ? size.moved : HUGE_VAL);
    per_step.push_back(moved.back() / static_cast<double>(std::max<int64_t>(size.steps, 1)));
  }
  return {lower_median(std::move(moved)), lower_median(std::move(per_step))};
}

/// What an update is compared with, and its name in messages.
struct Reference {
  double norm;
  std::string_view name;
};

Reference reference_of(const UpdateSize& size, const Medians& medians) {
  if (!(medians.moved > 0)) return {size.reach, "how far its optimiser can move"};
  const double by_steps = medians.per_step * static_cast<double>(size.steps);
  return by_steps > medians.moved ? Reference{by_steps, "the round's median per step, times its steps"}
                                  : Reference{medians.moved, "the round's median"};
}

}  // namespace

std::vector<TooLarge> too_large(std::span<const UpdateSize> sizes, const UpdateBounds& bounds) {
  std::vector<TooLarge> found;
  const auto medians = medians_of(sizes);
  for (const auto& size : sizes) {
    const auto reference = reference_of(size, medians);
    const auto moves = concat("its update moves by ", size.moved, ", ");
    if (bounds.norm > 0 && !(size.moved <= bounds.norm))
      found.push_back({size.client, size.moved, concat(moves, "clients.update_norm allows ", bounds.norm)});
    else if (bounds.ratio > 0 && reference.norm > 0 && !(size.moved <= bounds.ratio * reference.norm))
      found.push_back({size.client, size.moved,
                       concat(moves, "clients.update_ratio allows ", bounds.ratio, " times ", reference.norm, ", ",
                              reference.name)});
  }
  return found;
}

}  // namespace evenkeel::fed
