#include "fed/config/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "crypto/testing.h"

namespace evenkeel::fed {
namespace {

std::vector<methods::ClientProfile> clients(std::vector<double> examples) {
  std::vector<methods::ClientProfile> result;
  for (double count : examples)
    result.push_back(
        {.id = static_cast<int64_t>(result.size()), .budget = 1, .top_k = 8, .rank = 3, .examples = count});
  return result;
}

TEST(Sampling, FullParticipationReturnsAllClientsInIdOrder) {
  EXPECT_EQ(sample_participants(5, 1.0, 7, 0), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Sampling, DrawsWithoutRepetitionAndAtLeastOne) {
  for (int64_t round = 0; round < 50; ++round) {
    const auto ids = sample_participants(11, 0.4, 42, round);
    EXPECT_EQ(ids.size(), 4u);
    EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 4u);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  }
  EXPECT_EQ(sample_participants(11, 0.001, 42, 0).size(), 1u);
}

TEST(Sampling, DrawsDifferByRoundAndAreReproducible) {
  std::set<std::vector<int64_t>> seen;
  for (int64_t round = 0; round < 20; ++round) {
    seen.insert(sample_participants(30, 0.2, 42, round));
    EXPECT_EQ(sample_participants(30, 0.2, 42, round), sample_participants(30, 0.2, 42, round));
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST(Sampling, DrawsClientsAboutEquallyOften) {
  std::vector<int> drawn(10);
  for (int64_t round = 0; round < 2000; ++round)
    for (int64_t id : sample_participants(10, 0.3, 3, round)) ++drawn[static_cast<size_t>(id)];
  for (int count : drawn) EXPECT_NEAR(count, 600, 100);
}

TEST(Sampling, WeightsAreSharesOfTheParticipantsExamples) {
  const auto all = clients({10, 30, 60, 100, 200});
  const auto round = draw_round(all, 0.6, 1, 4);
  ASSERT_EQ(round.participants.size(), 3u);
  double total = 0;
  for (const auto& client : round.participants) total += client.examples;
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(round.weights[i], round.participants[i].examples / total);
  EXPECT_NEAR(std::accumulate(round.weights.begin(), round.weights.end(), 0.0), 1.0, 1e-15);
  EXPECT_EQ(round.round, 4);
}

TEST(Sampling, ClientsAreDrawnInTheRoundsInWhichTheyTakePart) {
  auto all = clients({10, 30, 60, 100, 200});
  all[1].end_round = 2;
  all[4].first_round = 3;
  const auto drawn = [&](int64_t round) {
    std::vector<int64_t> ids;
    for (const auto& client : draw_round(all, 1.0, 7, round).participants) ids.push_back(client.id);
    return ids;
  };
  EXPECT_EQ(drawn(1), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn(2), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_EQ(drawn(3), (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_EQ(draw_round(all, 0.5, 7, 2).participants.size(), 2u) << "a share of those who take part";
}

TEST(Sampling, TheMeanKOfAllClientsIsOfThoseThatCouldBeDrawn) {
  auto all = clients({10, 30, 60, 100, 200});
  for (auto& client : all) client.top_k = 1 + client.id;
  all[4].first_round = 3;
  const double rows = 10 + 30 + 60 + 100;
  EXPECT_DOUBLE_EQ(draw_round(all, 0.25, 7, 2).mean_top_k_of_all, (10 + 2 * 30 + 3 * 60 + 4 * 100) / rows);
  EXPECT_DOUBLE_EQ(draw_round(all, 0.25, 7, 3).mean_top_k_of_all, (10 + 2 * 30 + 3 * 60 + 4 * 100 + 5 * 200) / 400.0);
  const auto left = without(draw_round(all, 1.0, 7, 3), std::vector<int64_t>{4});
  EXPECT_DOUBLE_EQ(left.mean_top_k_of_all, 1650 / 400.0) << "a lost client could be drawn";
  EXPECT_DOUBLE_EQ(draw_round(all, 1.0, 7, 2, /*equal_weights=*/true).mean_top_k_of_all, (1 + 2 + 3 + 4) / 4.0);
}

TEST(Sampling, ARoundWithoutClientsIsEmpty) {
  auto all = clients({10, 30, 60});
  for (auto& client : all) client.end_round = 1;
  EXPECT_TRUE(draw_round(all, 1.0, 7, 1).participants.empty());
}

// The draws were computed by Python: hmac.new(key, info + b"\x01").
TEST(Sampling, PoissonDrawsAreThoseOfTheKey) {
  const auto all = clients({10, 30, 60, 20, 5, 9, 8, 7, 3, 2, 40, 50});
  const auto key = testing::secret_of("evenkeel dp sample key");
  const auto drawn = [&](double probability, int64_t round) {
    std::vector<int64_t> ids;
    for (const auto& client : draw_poisson(all, probability, key, round, true).participants) ids.push_back(client.id);
    return ids;
  };
  EXPECT_EQ(drawn(0.3, 0), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(drawn(0.3, 1), (std::vector<int64_t>{0, 3, 8, 9}));
  EXPECT_EQ(drawn(1, 1).size(), all.size());
  EXPECT_TRUE(drawn(1e-12, 0).empty());
}

TEST(Sampling, PoissonDrawsHaveTheirProbabilityAndLeaveOutWhoDoesNotTakePart) {
  auto all = clients({10, 30, 60});
  all[1].end_round = 5;
  const auto key = testing::secret_of("another key");
  std::vector<int64_t> counts(3);
  constexpr int64_t kRounds = 4000;
  for (int64_t round = 0; round < kRounds; ++round)
    for (const auto& client : draw_poisson(all, 0.25, key, round, false).participants)
      ++counts[static_cast<size_t>(client.id)];
  EXPECT_NEAR(static_cast<double>(counts[0]), 0.25 * kRounds, 5 * std::sqrt(0.25 * 0.75 * kRounds));
  EXPECT_NEAR(static_cast<double>(counts[2]), 0.25 * kRounds, 5 * std::sqrt(0.25 * 0.75 * kRounds));
  EXPECT_LE(counts[1], 5);
}

}  // namespace
}  // namespace evenkeel::fed
