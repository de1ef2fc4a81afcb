#include "data/partition.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/random/random.h"

namespace evenkeel::data {
namespace {

using Shards = std::vector<std::vector<int64_t>>;

/// Divides `rows` into contiguous parts whose sizes differ by at most one.
Shards cut_evenly(std::span<const int64_t> rows, int64_t clients) {
  Shards shards;
  const auto total = static_cast<int64_t>(rows.size());
  for (int64_t c = 0; c < clients; ++c)
    shards.emplace_back(rows.begin() + c * total / clients, rows.begin() + (c + 1) * total / clients);
  return shards;
}

/// Shuffles the rows of each group. Groups are in the order of their labels.
Shards shuffled_groups(std::span<const std::string> labels, uint64_t seed) {
  std::map<std::string_view, std::vector<int64_t>> groups;
  for (size_t i = 0; i < labels.size(); ++i) groups[labels[i]].push_back(static_cast<int64_t>(i));
  Shards result;
  for (auto& [label, rows] : groups) {
    RandomStream(seed, "partition-group", result.size()).shuffle(std::span(rows));
    result.push_back(std::move(rows));
  }
  return result;
}

/// Each client draws q_c ~ Dir(alpha) over the groups and takes an equal number of rows. The group of each row is drawn
/// by q_c from the groups that still have rows. Source: Hsu et al. 2019.
Shards deal_to_clients(Shards groups, int64_t total, int64_t clients, double alpha, uint64_t seed) {
  Shards shards(static_cast<size_t>(clients));
  for (int64_t c = 0; c < clients; ++c) {
    RandomStream stream(seed, "partition-client", static_cast<uint64_t>(c));
    auto mixture = stream.dirichlet(alpha, static_cast<int64_t>(groups.size()));
    const int64_t share = (c + 1) * total / clients - c * total / clients;
    for (int64_t i = 0; i < share; ++i) {
      for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].empty()) mixture[g] = 0;
      if (std::accumulate(mixture.begin(), mixture.end(), 0.0) <= 0)
        for (size_t g = 0; g < groups.size(); ++g) mixture[g] = groups[g].empty() ? 0 : 1;
      auto& group = groups[static_cast<size_t>(stream.choose(mixture))];
      shards[static_cast<size_t>(c)].push_back(group.back());
      group.pop_back();
    }
  }
  return shards;
}

/// Divides every group among the clients by p_g ~ Dir(alpha). Source: Yurochkin et al. 2019.
Shards cut_groups(const Shards& groups, int64_t clients, double alpha, uint64_t seed, uint64_t attempt) {
  Shards shards(static_cast<size_t>(clients));
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto shares = RandomStream(seed, "partition-cut", g, attempt).dirichlet(alpha, clients);
    double reached = 0;
    size_t start = 0;
    for (size_t c = 0; c < shards.size(); ++c) {
      reached += shares[c];
      const auto rows = static_cast<double>(groups[g].size());
      const size_t end = c + 1 == shards.size()
                             ? groups[g].size()
                             : std::min(static_cast<size_t>(std::llround(reached * rows)), groups[g].size());
      shards[c].insert(shards[c].end(), groups[g].begin() + start, groups[g].begin() + end);
      start = end;
    }
  }
  return shards;
}

bool any_empty(const Shards& shards) {
  return std::any_of(shards.begin(), shards.end(), [](const auto& rows) { return rows.empty(); });
}

/// Repeats the draw until no client is empty, as the source does.
Shards cut_groups_until_filled(const Shards& groups, int64_t clients, double alpha, uint64_t seed) {
  constexpr uint64_t kAttempts = 1000;
  for (uint64_t attempt = 0; attempt < kAttempts; ++attempt) {
    auto shards = cut_groups(groups, clients, alpha, seed, attempt);
    if (!any_empty(shards)) return shards;
  }
  fail(kConfig, "partition: in ", kAttempts, " draws with alpha ", alpha, " a client stayed empty; ", groups.size(),
       " groups over ", clients, " clients; use a larger alpha, fewer clients, or scheme \"client\"");
}

Shards dirichlet_partition(std::span<const std::string> labels, int64_t clients, const PartitionConfig& config,
                           uint64_t seed) {
  auto groups = shuffled_groups(labels, seed);
  if (config.scheme == DirichletScheme::kGroup) return cut_groups_until_filled(groups, clients, config.alpha, seed);
  return deal_to_clients(std::move(groups), static_cast<int64_t>(labels.size()), clients, config.alpha, seed);
}

}  // namespace

std::vector<std::vector<int64_t>> partition(std::span<const std::string> labels, int64_t clients,
                                            const PartitionConfig& config, uint64_t seed) {
  const auto total = static_cast<int64_t>(labels.size());
  EK_CHECK(clients >= 1, kConfig, "partition: ", clients, " clients, allowed: 1 or more");
  EK_CHECK(clients <= total, kConfig, "partition: ", clients, " clients for ", total,
           " rows; every client needs at least one");
  EK_CHECK(std::isfinite(config.alpha) && config.alpha > 0, kConfig, "partition.alpha is ", config.alpha,
           ", allowed: above 0");
  if (config.kind == PartitionKind::kDirichlet) return dirichlet_partition(labels, clients, config, seed);
  std::vector<int64_t> rows(labels.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (config.kind == PartitionKind::kIid) RandomStream(seed, "partition").shuffle(std::span(rows));
  return cut_evenly(rows, clients);
}

}  // namespace evenkeel::data
