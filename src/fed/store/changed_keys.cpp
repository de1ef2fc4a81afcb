#include "fed/store/changed_keys.h"

#include <algorithm>

namespace evenkeel::fed {

std::vector<ChangedKey> changed_keys(const ExperimentConfig& asked, const ExperimentConfig& run) {
  auto known = run.values();
  std::vector<ChangedKey> result;
  for (const auto& [key, value] : asked.values()) {
    const auto found = known.extract(key);
    if (key == "output.dir" || (found && found.mapped() == value)) continue;
    result.push_back({key, value, found ? std::optional(found.mapped()) : std::nullopt});
  }
  for (const auto& [key, value] : known)
    if (key != "output.dir") result.push_back({key, std::nullopt, value});
  std::stable_partition(result.begin(), result.end(),
                        [](const ChangedKey& change) { return change.key == "method.name"; });
  return result;
}

}  // namespace evenkeel::fed
