#include "cluster/assignment.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::cluster {

std::vector<std::vector<size_t>> assign_by_cost(std::span<const double> costs, int ranks) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return costs[x] > costs[y]; });
  std::vector<std::vector<size_t>> shares(static_cast<size_t>(ranks));
  std::vector<double> loads(static_cast<size_t>(ranks), 0);
  for (const size_t client : order) {
    const auto rank = static_cast<size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    shares[rank].push_back(client);
    loads[rank] += costs[client];
  }
  return shares;
}

}  // namespace evenkeel::cluster
