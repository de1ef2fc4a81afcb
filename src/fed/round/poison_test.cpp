// What one hostile client of three, or two of ten, can do to a run whose updates are bounded.
#include <gtest/gtest.h>

#include <cmath>

#include "fed/round/testing.h"
#include "fed/round/update_size.h"
#include "fed/testing.h"
#include "lora/distance.h"

namespace evenkeel::fed {
namespace {

using testing::PoisonedFabric, testing::Poison;

struct Attack {
  const char* name;
  Poison poison;
};
const std::vector<Attack>& attacks() {
  static const std::vector<Attack> all = {
      {"large", testing::large}, {"minus thirty times", testing::scaled(-30)}, {"constant", testing::constant}};
  return all;
}

class PoisonTest : public testing::SmallRun {
 protected:
  static constexpr int64_t kRounds = 3;
  struct Played {
    Snapshot begun{}, last{};
    std::vector<RoundRecord> records{};
  };

  /// Plays the rounds of an experiment. \param hostile  the clients whose uploads `poison` changes
  static Played play(Experiment& e, const std::set<int64_t>& hostile, const Poison& poison, const std::string& name) {
    PoisonedFabric fabric(e.fabric, e.server.sites, hostile, poison);
    Played played;
    played.begun = played.last = before_first_round(e.server, fabric);
    for (int64_t round = 0; round < kRounds; ++round) {
      RunProgress progress(e.server, round);
      restore_clients(e.server, fabric, played.last);
      auto result = run_round(e.server, fabric, played.last, RoundJournal(root() / concat(name, "-", round)), progress);
      played.last = std::move(result.next);
      played.records.push_back(std::move(result.record));
    }
    return played;
  }

  static double distance(const Snapshot& one, const Snapshot& other) {
    return update_norm({.adapters = one.state.global.adapters}, {.adapters = other.state.global.adapters});
  }

  static Experiment of(int64_t count, std::string_view method, std::string_view setting) {
    return experiment(method, Purpose::kTrain, setting,
                      {concat("clients.count=", count), "clients.budgets={ values = [0.25, 0.5, 1.0] }",
                       concat("data.limit=", 12 * count), "train.rounds=3"});
  }

  static void expect_near_undisturbed(int64_t count, const std::set<int64_t>& hostile, std::string_view method) {
    auto calm = of(count, method, "clients.bound_simulated=true");
    const auto undisturbed = play(calm, {}, {}, concat("calm-", method, count));
    for (const auto& record : undisturbed.records) EXPECT_FALSE(record.lost) << "an honest client was left out";
    const double moved = distance(undisturbed.last, undisturbed.begun);
    for (const auto& [name, poison] : attacks()) {
      auto bounded = of(count, method, "clients.bound_simulated=true"), open = of(count, method, "threads=1");
      const auto with = play(bounded, hostile, poison, concat("with-", name, method, count));
      const auto without = play(open, hostile, poison, concat("without-", name, method, count));
      EXPECT_LT(distance(with.last, undisturbed.last), 1.5 * moved) << name << ' ' << method;
      EXPECT_GT(distance(without.last, undisturbed.last), 3 * moved) << name << ' ' << method;
      EXPECT_NEAR(*with.records.back().last_loss, *undisturbed.records.back().last_loss, 0.7) << name << ' ' << method;
      for (const auto& record : with.records) {
        ASSERT_TRUE(record.lost && record.lost->size() == hostile.size()) << name << ' ' << method;
        for (const auto& lost : *record.lost) {
          EXPECT_TRUE(hostile.contains(lost.id)) << name;
          EXPECT_NE(lost.reason.find("left out: its update moves by"), std::string::npos) << lost.reason;
          EXPECT_GT(lost.moved.value_or(0), 0);
        }
      }
    }
  }
};

TEST_F(PoisonTest, OneOfThreeClientsDoesNotRuinARun) {
  for (const auto* method : {"fedit", "ub-smoe"}) expect_near_undisturbed(3, {1}, method);
}

TEST_F(PoisonTest, TwoOfTenClientsDoNotRuinARun) { expect_near_undisturbed(10, {2, 7}, "fedit"); }

TEST_F(PoisonTest, OfTwoClientsTheOneThatOutrunsItsOptimiserIsLeftOut) {
  auto e = of(2, "fedit", "clients.bound_simulated=true");
  for (const auto& record : play(e, {1}, testing::large, "two").records) {
    ASSERT_TRUE(record.lost && record.lost->size() == 1u);
    EXPECT_EQ(record.lost->front().id, 1);
  }
}

TEST_F(PoisonTest, ARoundWhoseOnlyUpdateIsTooLargeIsAnErrorThatSaysSo) {
  auto e = of(1, "fedit", "clients.bound_simulated=true");
  const auto said = testing::refusal([&] { play(e, {0}, testing::large, "one"); });
  EXPECT_NE(said.find("no update is within the bounds"), std::string::npos) << said;
  EXPECT_NE(said.find("clients.update_ratio allows 10 times"), std::string::npos) << said;
}

TEST_F(PoisonTest, TrafficOfAClientThatIsLeftOutIsRecordedAlsoIfItsUploadIsInTheJournal) {
  auto e = of(3, "fedit", "clients.bound_simulated=true");
  const auto whole = play(e, {1}, testing::large, "traffic").records;
  const auto resumed = play(e, {1}, testing::large, "traffic").records;  // with the same journals
  for (size_t round = 0; round < whole.size(); ++round) {
    ASSERT_TRUE(whole[round].lost && whole[round].lost->size() == 1u);
    EXPECT_GT(whole[round].lost->front().bytes_down, 0);
    EXPECT_EQ(testing::without_seconds(resumed[round]), testing::without_seconds(whole[round]));
  }
}

TEST_F(PoisonTest, HonestUpdatesOfEveryMethodAreFarWithinTheBound) {
  for (const auto& entry : methods::methods()) {
    const std::string federated = entry.name == "fed-sb" ? "method.fed-sb.init=federated" : "threads=1";
    auto e = experiment(entry.name, Purpose::kTrain, federated,
                        {"clients.bound_simulated=true", "clients.update_ratio=4", "train.rounds=3"});
    for (const auto& record : play(e, {}, {}, concat("honest-", entry.name)).records)
      EXPECT_FALSE(record.lost) << entry.name << ": " << record.lost->front().reason;
  }
}

/// Returns the cosine of the first changes of the base by Fed-SB, B R A, in two runs.
double cosine_of_starts(const Snapshot& one, const Snapshot& other) {
  const auto& [site, core] = *one.state.global.adapters.begin();
  const auto change = [&site = site](const Snapshot& run) {
    const auto& fixed = run.state.common.fixed.at(site);
    return fixed.b.matmul(run.state.global.adapters.at(site).core).matmul(fixed.a).flatten();
  };
  const auto x = change(one), y = change(other);
  return (x.dot(y) / (x.norm() * y.norm())).item<double>();
}

TEST_F(PoisonTest, AClientDoesNotChooseTheStartOfFedSb) {
  const auto begun = [&](const std::set<int64_t>& hostile, std::string_view bound) {
    auto e = experiment("fed-sb", Purpose::kTrain, "method.fed-sb.init=federated",
                        {"clients.count=3", "clients.budgets={ values = [0.25, 0.5, 1.0] }", "data.limit=36", bound});
    PoisonedFabric fabric(e.fabric, e.server.sites, hostile, testing::scaled(-30));
    return before_first_round(e.server, fabric);
  };
  const auto honest = begun({}, "clients.bound_simulated=true");
  EXPECT_LT(cosine_of_starts(begun({1}, "threads=1"), honest), 0);
  EXPECT_GT(cosine_of_starts(begun({1}, "clients.bound_simulated=true"), honest), 0.4);
}

TEST_F(PoisonTest, WithoutAQuorumOfGradientsNothingBegins) {
  auto e = experiment("fed-sb", Purpose::kTrain, "method.fed-sb.init=federated",
                      {"clients.count=3", "clients.budgets={ values = [0.25, 0.5, 1.0] }", "data.limit=36",
                       "clients.bound_simulated=true", "clients.quorum=3"});
  PoisonedFabric fabric(e.fabric, e.server.sites, {1}, testing::large);
  const auto said = testing::refusal([&] { before_first_round(e.server, fabric); });
  EXPECT_NE(said.find("2 of 3 clients are left to make the gradients"), std::string::npos) << said;
}

TEST_F(PoisonTest, WhatAClientInheritsIsNotCountedAsItsOwn) {
  auto e = of(3, "fedit", "clients.bound_simulated=true");
  auto now = before_first_round(e.server, e.fabric);
  for (auto& [site, factors] : now.state.global.adapters) factors.b.fill_(5);
  RunProgress progress(e.server, 0);
  restore_clients(e.server, e.fabric, now);
  const auto result = run_round(e.server, e.fabric, now, RoundJournal(root() / "inherited"), progress);
  EXPECT_FALSE(result.record.lost) << result.record.lost->front().reason;
}

TEST_F(PoisonTest, RobustRulesEndNearTheUndisturbedRunWithoutTheBound) {
  auto calm = of(7, "fedit", "threads=1");
  const auto undisturbed = play(calm, {}, {}, "calm-rules");
  const double moved = distance(undisturbed.last, undisturbed.begun);
  for (const auto* rule : {"trimmed_mean", "median", "clipped_mean", "krum"})
    for (const auto& [name, poison] : attacks()) {
      auto e = of(7, "fedit", concat("aggregation.rule=", rule));
      const auto with = play(e, {3}, poison, concat("rule-", rule, name));
      EXPECT_LT(distance(with.last, undisturbed.last), 4 * moved) << rule << ' ' << name;
      EXPECT_NEAR(*with.records.back().last_loss, *undisturbed.records.back().last_loss, 0.7) << rule << ' ' << name;
      EXPECT_FALSE(with.records.back().lost);
    }
}

}  // namespace
}  // namespace evenkeel::fed
