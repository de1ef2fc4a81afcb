#include "data/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "base/plain/clock.h"
#include "base/plain/error.h"
#include "base/random/random.h"

namespace evenkeel::data {
namespace {

using Shards = std::vector<std::vector<int64_t>>;

/// Divides the rows among clients of equal budgets.
Shards parts_of(std::span<const std::string> labels, size_t clients, const PartitionConfig& config, uint64_t seed) {
  return partition(labels, std::vector<double>(clients, 1.0), config, seed);
}

std::vector<std::string> labels_of(int64_t groups, int64_t rows_each) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < groups * rows_each; ++i) labels.push_back("kind" + std::to_string(i % groups));
  return labels;
}

void expect_complete(const Shards& shards, size_t rows) {
  std::vector<int64_t> all;
  for (const auto& shard : shards) {
    EXPECT_FALSE(shard.empty());
    all.insert(all.end(), shard.begin(), shard.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(rows);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

/// Returns the mean over clients of the share of a client's most frequent label.
double dominance(const Shards& shards, const std::vector<std::string>& labels) {
  double sum = 0;
  for (const auto& shard : shards) {
    std::map<std::string, int64_t> counts;
    int64_t most = 0;
    for (const auto row : shard) most = std::max(most, ++counts[labels[static_cast<size_t>(row)]]);
    sum += static_cast<double>(most) / static_cast<double>(shard.size());
  }
  return sum / static_cast<double>(shards.size());
}

std::pair<size_t, size_t> sizes_of(const Shards& shards) {
  const auto [least, most] = std::minmax_element(shards.begin(), shards.end(),
                                                 [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return {least->size(), most->size()};
}

PartitionConfig dirichlet(DirichletScheme scheme, double alpha) {
  return {.kind = PartitionKind::kDirichlet, .alpha = alpha, .key = "label", .scheme = scheme};
}

TEST(Partition, EveryKindIsDisjointAndComplete) {
  const auto labels = labels_of(7, 43);
  for (const auto kind : {PartitionKind::kIid, PartitionKind::kSequential, PartitionKind::kDirichlet})
    for (const auto scheme : {DirichletScheme::kClient, DirichletScheme::kPrior, DirichletScheme::kGroup})
      for (const size_t clients : {1, 2, 8, 32})
        expect_complete(parts_of(labels, clients, {.kind = kind, .alpha = 0.5, .scheme = scheme}, 42), labels.size());
}

TEST(Partition, IidIsEvenShuffledAndHardlySkewed) {
  const auto labels = labels_of(5, 201);
  const auto shards = parts_of(labels, 8, {}, 42);
  const auto [least, most] = sizes_of(shards);
  EXPECT_LE(most - least, 1u);
  EXPECT_FALSE(std::is_sorted(shards[0].begin(), shards[0].end()));
  EXPECT_LT(dominance(shards, labels), 0.35) << "one of five labels is 0.2 of all rows";
}

TEST(Partition, SequentialSplitsInFileOrder) {
  const auto shards = parts_of(labels_of(1, 10), 3, {.kind = PartitionKind::kSequential}, 42);
  EXPECT_EQ(shards, (Shards{{0, 1, 2}, {3, 4, 5}, {6, 7, 8, 9}}));
}

TEST(Partition, ClientSchemeGivesEqualSizesAndStrongSkewAtSmallAlpha) {
  const auto labels = labels_of(8, 250);
  const auto skewed = parts_of(labels, 8, dirichlet(DirichletScheme::kClient, 0.1), 42);
  const auto mild = parts_of(labels, 8, dirichlet(DirichletScheme::kClient, 100), 42);
  const auto [least, most] = sizes_of(skewed);
  EXPECT_LE(most - least, 1u);
  // One of eight labels is 0.125 of all rows. A mixture of alpha = 0.1 gives most to one or two labels, one of alpha =
  // 100 is nearly even.
  EXPECT_GT(dominance(skewed, labels), 0.45);
  EXPECT_LT(dominance(mild, labels), 0.3);
}

// With eight equal groups, alpha p is an eighth of alpha: about one group for each client at alpha 0.1.
TEST(Partition, PriorSchemeIsTheClientSchemeAtAlphaTimesTheGroupsShares) {
  const auto labels = labels_of(8, 250);
  EXPECT_EQ(parts_of(labels, 8, dirichlet(DirichletScheme::kPrior, 0.8), 42),
            parts_of(labels, 8, dirichlet(DirichletScheme::kClient, 0.1), 42));
  std::vector<std::string> uneven(300, "large");
  uneven.insert(uneven.end(), 6, "small");
  int64_t small_first = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto first = parts_of(uneven, 40, dirichlet(DirichletScheme::kPrior, 0.1), seed).front();
    small_first += std::count_if(first.begin(), first.end(), [](int64_t row) { return row >= 300; }) > 3 ? 1 : 0;
  }
  EXPECT_LT(small_first, 20) << "a fiftieth of the first clients; half of them with equal concentrations";
}

TEST(Partition, GroupSchemeGivesUnequalSizesAndSkewAtSmallAlpha) {
  const auto labels = labels_of(20, 50);
  const auto skewed = parts_of(labels, 4, dirichlet(DirichletScheme::kGroup, 0.1), 42);
  const auto mild = parts_of(labels, 4, dirichlet(DirichletScheme::kGroup, 100), 42);
  // A client has 250 of 1,000 rows on average, in 20 groups of 50. Each group goes nearly whole to one client, or in
  // nearly equal parts to all four.
  EXPECT_GT(sizes_of(skewed).second, sizes_of(skewed).first + 50);
  EXPECT_LT(sizes_of(mild).second - sizes_of(mild).first, 100u);
  EXPECT_GT(dominance(skewed, labels), dominance(mild, labels));
}

TEST(Partition, DependsOnlyOnTheSeed) {
  const auto labels = labels_of(6, 30);
  for (const auto scheme : {DirichletScheme::kClient, DirichletScheme::kGroup}) {
    const auto config = dirichlet(scheme, 0.3);
    EXPECT_EQ(parts_of(labels, 4, config, 7), parts_of(labels, 4, config, 7));
    EXPECT_NE(parts_of(labels, 4, config, 7), parts_of(labels, 4, config, 8));
  }
}

/// Deals rows as the client scheme is defined, with a pass over all groups for each row.
Shards dealt_row_by_row(const std::vector<std::string>& labels, size_t clients, double alpha, uint64_t seed) {
  std::map<std::string, std::vector<int64_t>> by_label;
  for (size_t i = 0; i < labels.size(); ++i) by_label[labels[i]].push_back(static_cast<int64_t>(i));
  Shards groups, shards(clients);
  for (auto& [label, rows] : by_label) {
    RandomStream(seed, "partition-group", groups.size()).shuffle(std::span(rows));
    groups.push_back(rows);
  }
  for (size_t c = 0; c < clients; ++c) {
    RandomStream stream(seed, "partition-client", c);
    auto weights = stream.dirichlet(alpha, static_cast<int64_t>(groups.size()));
    for (size_t i = c * labels.size() / clients; i < (c + 1) * labels.size() / clients; ++i) {
      for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].empty()) weights[g] = 0;
      if (std::accumulate(weights.begin(), weights.end(), 0.0) <= 0)
        for (size_t g = 0; g < groups.size(); ++g) weights[g] = groups[g].empty() ? 0 : 1;
      auto& group = groups[static_cast<size_t>(stream.choose(weights))];
      shards[c].push_back(group.back());
      group.pop_back();
    }
  }
  return shards;
}

TEST(Partition, ClientsDrawTheGroupsThatTheyDrawByTheDefinition) {
  for (const int64_t groups : {1, 2, 5, 64, 601})
    for (const double alpha : {1e-4, 0.1, 3.0}) {
      auto labels = labels_of(groups, 3);
      labels.insert(labels.end(), 11, "kind0");
      EXPECT_EQ(parts_of(labels, 4, dirichlet(DirichletScheme::kClient, alpha), 42),
                dealt_row_by_row(labels, 4, alpha, 42))
          << groups << " groups, alpha " << alpha;
    }
}

TEST(Partition, RowsOfAsManyLabelsAreDealtInSeconds) {
  const auto labels = labels_of(200'003, 1);
  const auto begin = std::chrono::steady_clock::now();
  expect_complete(parts_of(labels, 7, dirichlet(DirichletScheme::kClient, 0.1), 42), labels.size());
  EXPECT_LT(seconds_since(begin), 20) << "a pass over all labels for each row took more than a minute";
}

TEST(Partition, AsManyClientsAsRowsGetOneRowEach) {
  const auto labels = labels_of(3, 3);
  for (const auto kind : {PartitionKind::kIid, PartitionKind::kSequential, PartitionKind::kDirichlet})
    for (const auto& shard : parts_of(labels, 9, {.kind = kind}, 42)) EXPECT_EQ(shard.size(), 1u);
}

TEST(Partition, RejectsImpossibleSplits) {
  const auto labels = labels_of(2, 2);
  EXPECT_THROW(parts_of(labels, 5, {}, 42), Error);
  EXPECT_THROW(parts_of(labels, 0, {}, 42), Error);
  EXPECT_THROW(parts_of(labels, 2, dirichlet(DirichletScheme::kClient, 0), 42), Error);
  EXPECT_THROW(parts_of(labels, 2, dirichlet(DirichletScheme::kClient, std::nan("")), 42), Error);
  // With alpha 1e-3, one group divided among four clients nearly always goes to a single client.
  EXPECT_THROW(parts_of(std::vector<std::string>(4, "all"), 4, dirichlet(DirichletScheme::kGroup, 1e-3), 42), Error);
}

}  // namespace
}  // namespace evenkeel::data
