#include "fed/config/per_client.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random/random.h"

namespace evenkeel::fed {

std::vector<int64_t> counts_by_share(std::span<const double> shares, int64_t clients) {
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> counts;
  std::vector<double> remainders;
  for (const double share : shares) {
    const double exact = share * static_cast<double>(clients) / whole;
    counts.push_back(static_cast<int64_t>(exact));
    remainders.push_back(exact - std::floor(exact));
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return remainders[x] > remainders[y]; });
  const int64_t left = clients - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < left; ++i) ++counts[order[i]];
  return counts;
}

std::vector<size_t> assigned_shares(std::span<const double> shares, Assignment deal, int64_t clients, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(clients));
  std::iota(order.begin(), order.end(), 0);
  if (deal == Assignment::kSeed) RandomStream(seed, "deal-clients").shuffle(std::span(order));
  std::vector<size_t> of(order.size());
  size_t next = 0;
  const auto counts = counts_by_share(shares, clients);
  for (size_t share = 0; share < counts.size(); ++share)
    for (int64_t i = 0; i < counts[share]; ++i) of[static_cast<size_t>(order[next++])] = share;
  return of;
}

}  // namespace evenkeel::fed
