// Tests the partition whose groups belong to the clients of one budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "data/partition.h"

namespace evenkeel::data {
namespace {

using Shards = std::vector<std::vector<int64_t>>;

PartitionConfig by_budget(double share, std::vector<std::string> groups = {}) {
  return {.kind = PartitionKind::kBudget, .share = share, .groups = std::move(groups)};
}

/// Returns `rows` labels out of "topic0", "topic1", ..., in random order and number; each occurs 30 times or more.
std::vector<std::string> random_labels(int64_t groups, int64_t rows, uint64_t seed) {
  RandomStream stream(seed, "labels");
  std::vector<std::string> labels;
  for (int64_t i = 0; i < rows; ++i)
    labels.push_back(concat("topic", i < 30 * groups ? i % groups : static_cast<int64_t>(stream.below(groups))));
  stream.shuffle(std::span(labels));
  return labels;
}

/// Returns the number of rows of each label that the clients of `budget` have.
std::map<std::string, int64_t> rows_at(double budget, const Shards& shards, const std::vector<std::string>& labels,
                                       const std::vector<double>& budgets) {
  std::map<std::string, int64_t> counts;
  for (size_t c = 0; c < shards.size(); ++c)
    if (budgets[c] == budget)
      for (const auto row : shards[c]) ++counts[labels[static_cast<size_t>(row)]];
  return counts;
}

std::map<std::string, int64_t> counts_of(const std::vector<std::string>& labels) {
  std::map<std::string, int64_t> counts;
  for (const auto& label : labels) ++counts[label];
  return counts;
}

/// Budgets of 8, 5 and 7 clients, not in order.
const std::vector<std::vector<double>> kBudgets = {
    {0.125, 0.25, 0.5, 1, 0.125, 0.25, 0.5, 1}, {1, 0.125, 0.125, 1, 0.125}, {0.5, 0.25, 0.5, 1, 0.25, 0.5, 0.5}};

std::vector<double> different(std::vector<double> budgets) {
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

TEST(BudgetPartition, EveryRowIsAssignedOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const auto& budgets : kBudgets) {
      const auto labels = random_labels(3 + static_cast<int64_t>(seed % 4), 301, seed);
      std::vector<int64_t> all, expected(labels.size());
      for (const auto& shard : partition(labels, budgets, by_budget(0.7), seed)) {
        EXPECT_FALSE(shard.empty());
        all.insert(all.end(), shard.begin(), shard.end());
      }
      std::sort(all.begin(), all.end());
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected);
    }
}

TEST(BudgetPartition, TheClientsOfABudgetHaveTheShareOfItsGroupsWithinRounding) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const auto& budgets : kBudgets)
      for (const double share : {0.85, 0.5, 1.0 / 3}) {
        const auto labels = random_labels(5, 407, seed);
        const auto shards = partition(labels, budgets, by_budget(share), seed);
        const auto tiers = different(budgets);
        size_t group = 0;
        for (const auto& [label, rows] : counts_of(labels)) {
          const double own = tiers[group++ % tiers.size()];
          EXPECT_LE(std::abs(static_cast<double>(rows_at(own, shards, labels, budgets)[label]) -
                             share * static_cast<double>(rows)),
                    0.5)
              << label << " at " << own;
        }
      }
}

TEST(BudgetPartition, ClientsOfOneBudgetAndAllOtherClientsDivideAGroupEvenly) {
  const auto labels = random_labels(4, 403, 3);
  const auto& budgets = kBudgets[0];
  const auto shards = partition(labels, budgets, by_budget(0.85), 3);
  const auto tiers = different(budgets);
  size_t group = 0;
  for (const auto& [label, rows] : counts_of(labels)) {
    std::vector<int64_t> own, other;
    for (size_t c = 0; c < shards.size(); ++c) {
      const int64_t count = std::count_if(shards[c].begin(), shards[c].end(), [&, &label = label](int64_t row) {
        return labels[static_cast<size_t>(row)] == label;
      });
      (budgets[c] == tiers[group] ? own : other).push_back(count);
    }
    for (const auto& counts : {own, other}) {
      const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
      EXPECT_LE(*most - *least, 1) << label;
    }
    ++group;
  }
}

TEST(BudgetPartition, GroupsAreGivenInTheOrderOfTheKey) {
  const auto labels = random_labels(4, 200, 5);
  const std::vector<double> budgets = {1, 0.25, 0.5};
  const std::vector<std::string> order = {"topic2", "topic0", "topic3", "topic1"};
  const auto shards = partition(labels, budgets, by_budget(1.0, order), 5);
  const auto counts = counts_of(labels);
  using Counts = std::map<std::string, int64_t>;
  EXPECT_EQ(rows_at(0.25, shards, labels, budgets),
            (Counts{{"topic1", counts.at("topic1")}, {"topic2", counts.at("topic2")}}));
  EXPECT_EQ(rows_at(0.5, shards, labels, budgets), (Counts{{"topic0", counts.at("topic0")}}));
  EXPECT_EQ(rows_at(1, shards, labels, budgets), (Counts{{"topic3", counts.at("topic3")}}));
}

TEST(BudgetPartition, DependsOnTheSeedAndNotOnKeysOfOtherKinds) {
  const auto labels = random_labels(4, 240, 6);
  auto config = by_budget(0.85);
  const auto before = partition(labels, kBudgets[1], config, 7);
  EXPECT_EQ(before, partition(labels, kBudgets[1], config, 7));
  EXPECT_NE(before, partition(labels, kBudgets[1], config, 8));
  config.alpha = 3, config.scheme = DirichletScheme::kGroup;
  EXPECT_EQ(before, partition(labels, kBudgets[1], config, 7));
  config.share = 0.6;
  EXPECT_NE(before, partition(labels, kBudgets[1], config, 7));
}

TEST(BudgetPartition, TheRowsOfAClientDependOnWhichClientsHaveItsBudgetOnly) {
  const auto labels = random_labels(2, 240, 6);
  const std::vector<double> budgets = {0.25, 1, 0.25, 1}, twice = {0.5, 2, 0.5, 2};
  EXPECT_EQ(partition(labels, budgets, by_budget(0.85), 7), partition(labels, twice, by_budget(0.85), 7))
      << "the order of budgets counts, and not their size";
}

void expect_refused(const std::vector<std::string>& labels, const std::vector<double>& budgets,
                    const PartitionConfig& config, std::string_view words) {
  try {
    partition(labels, budgets, config, 42);
    ADD_FAILURE() << "accepted: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(BudgetPartition, RejectsWhatItCannotDivide) {
  const auto labels = random_labels(3, 90, 1);
  const std::vector<double> budgets = {0.25, 0.5, 1};
  expect_refused(labels, {0.5, 0.5}, by_budget(0.85), "all clients have budget 0.5");
  expect_refused(labels, {0.5}, by_budget(1), "all clients have budget 0.5");
  expect_refused(labels, budgets, by_budget(0.85, {"topic0", "topic1"}), "groups lacks \"topic2\"");
  expect_refused(labels, budgets, by_budget(0.85, {"topic0", "topic1", "topic2", "x"}), "groups holds \"x\"");
  expect_refused(random_labels(2, 60, 1), budgets, by_budget(1), "gives client 2 (budget 1) no row");
}

}  // namespace
}  // namespace evenkeel::data
