// Tests of a node's account in runs that protect whole clients by noise of the clients: what is charged, what is
// refused, and which rounds it takes no part in.
#include "flower/federation/node_noise.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/testing.h"
#include "crypto/testing.h"
#include "fed/testing.h"

namespace evenkeel::flower {
namespace {

constexpr int64_t kValues = 50, kMembers = 5;

fed::RunConfig config(const std::vector<std::string>& more = {}) {
  auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
  for (const auto* setting :
       {"method.name=fedit", "clients.count=5", "clients.budgets=[]", "secure_aggregation.mode=masks",
        "secure_aggregation.reports=false", "secure_aggregation.colluders=1", "privacy.unit=client",
        "privacy.noise_multiplier=2.0", "privacy.delta=1e-5", "privacy.clip=0.5", "privacy.epsilon=9.0"})
    table.set(setting);
  for (const auto& setting : more) table.set(setting);
  return fed::settle(fed::ExperimentConfig::read(table), {});
}

class NodeNoiseTest : public ::testing::Test {
 protected:
  NodeNoiseTest() { options_.folder = folder_.path() / "memory"; }

  static privacy::MemberNoise noise() { return privacy::member_noise(2, 0, privacy::grid_of(kValues, 0.5), kHonest); }

  static secure::RoundContext context() {
    secure::RoundContext context{.round = 0,
                                 .bits = 32,
                                 .exponent = 0,
                                 .range = privacy::largest_sum(noise(), privacy::grid_of(kValues, 0.5), kMembers),
                                 .threshold = 4,
                                 .values = kValues,
                                 .counts = 1,
                                 .variance = noise().variance,
                                 .clip = 0.5};
    for (int64_t client = 0; client < kMembers; ++client) context.roster.push_back({client, "key", 0.2});
    return context;
  }

  static crypto::Secret charge(NodeNoise& account, int64_t round, int64_t first_value) {
    std::vector<int64_t> change(kValues + 1, 3);
    change[0] = first_value, change.back() = 0;
    const fed::SummedTerms terms{.weight = 0.2, .roster = {0, 1, 2, 3, 4}, .noise = fed::NoiseTerms{0.5, noise()}};
    return account.charge({.round = round, .client = {}}, terms, change);
  }

  size_t releases() const { return privacy::Ledger::releases(options_.folder / "client-privacy").size(); }

  static constexpr int64_t kHonest = 3;  // a threshold of 4, of whom one may work together with the server
  testing::TemporaryFolder folder_;
  NodeClientOptions options_;
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(NodeNoiseTest, ARepeatedChangeIsChargedOnceAlsoByALaterProcess) {
  {
    NodeNoise account(options_, "run1", config());
    charge(account, 0, 7);
    charge(account, 0, 7);
    EXPECT_EQ(releases(), 1u);
  }
  NodeNoise account(options_, "run1", config());
  charge(account, 0, 7);
  EXPECT_EQ(releases(), 1u);
  charge(account, 0, 8);
  charge(account, 1, 7);
  EXPECT_EQ(releases(), 3u);
  privacy::Accountant three;
  three.add({.noise = 2}, 3);
  EXPECT_NEAR(privacy::Ledger::releases(options_.folder / "client-privacy").back().epsilon, three.spent(1e-5).epsilon,
              1e-4);
}

TEST_F(NodeNoiseTest, TheKeyIsOneOfTheRunAndOfTheNode) {
  NodeNoise account(options_, "run1", config());
  const auto key = charge(account, 0, 7);
  EXPECT_EQ(testing::hex(key.bytes()), testing::hex(charge(account, 1, 9).bytes()));
  NodeClientOptions other;
  other.folder = folder_.path() / "other";
  NodeNoise of_other(other, "run1", config());
  EXPECT_NE(testing::hex(key.bytes()), testing::hex(charge(of_other, 0, 7).bytes()));
}

TEST_F(NodeNoiseTest, AnotherRunHasOtherNoiseAndTheSameAccount) {
  std::string key;
  {
    NodeNoise account(options_, "run1", config());
    key = testing::hex(charge(account, 0, 7).bytes());
  }
  NodeNoise account(options_, "run2", config());
  EXPECT_NE(testing::hex(charge(account, 0, 7).bytes()), key);
  EXPECT_EQ(releases(), 2u);
}

TEST_F(NodeNoiseTest, RefusesARoundBeyondItsOwnBudgetBeforeAndAfterTraining) {
  privacy::Accountant one;
  one.add({.noise = 2});
  options_.client_budget = {.epsilon = one.spent(1e-5).epsilon + 0.1, .delta = 1e-5};
  NodeNoise account(options_, "run1", config());
  account.require_budget(context());
  charge(account, 0, 7);
  account.require_budget(context());  // a repetition
  charge(account, 0, 7);
  EXPECT_NE(refusal([&] { charge(account, 0, 8); }).find("budget of this node as a client is spent"),
            std::string::npos);
  auto later = context();
  later.round = 1;
  EXPECT_NE(refusal([&] { account.require_budget(later); }).find("one more round would exceed it"), std::string::npos);
  EXPECT_EQ(releases(), 1u);
}

TEST_F(NodeNoiseTest, WithoutAnOwnBudgetThatOfTheConfigHolds) {
  NodeNoise account(options_, "run1", config());
  int64_t rounds = 0;
  while (refusal([&] { charge(account, rounds, 7); }).empty()) ++rounds;
  EXPECT_EQ(rounds, privacy::Accountant().remaining({.noise = 2}, {9, 1e-5}, 1000));
  NodeClientOptions other;
  other.folder = folder_.path() / "free";
  NodeNoise without(other, "run1", config({"privacy.epsilon=0.0"}));
  for (int64_t round = 0; round < rounds + 3; ++round) charge(without, round, 7);
}

TEST_F(NodeNoiseTest, ABudgetRequiresARunWithNoiseOfTheClients) {
  const ClientBudgetOptions budget{.epsilon = 3, .delta = 1e-5};
  EXPECT_NO_THROW(require_client_privacy_as_agreed(budget, config()));
  EXPECT_NO_THROW(require_client_privacy_as_agreed(
      {}, config({"privacy.unit=off", "privacy.noise_multiplier=0.0", "privacy.delta=0.0", "privacy.clip=0.0",
                  "privacy.epsilon=0.0", "secure_aggregation.colluders=0"})));
  const auto trusted =
      config({"secure_aggregation.mode=off", "secure_aggregation.reports=true", "secure_aggregation.colluders=0"});
  EXPECT_NE(refusal([&] { require_client_privacy_as_agreed(budget, trusted); }).find("--client-epsilon"),
            std::string::npos);
}

TEST_F(NodeNoiseTest, RefusesRoundsWithLessNoiseThanWasAgreedOn) {
  check_noise(context(), *config());
  const auto changed = [&](const std::function<void(secure::RoundContext&)>& change) {
    auto terms = context();
    change(terms);
    return refusal([&] { check_noise(terms, *config()); });
  };
  EXPECT_NE(changed([](auto& terms) { terms.variance -= terms.variance / 50; }).find("honest members have noise"),
            std::string::npos);
  EXPECT_NE(changed([](auto& terms) { terms.variance = 0; }).find("noise variances 0"), std::string::npos);
  EXPECT_NE(changed([](auto& terms) { terms.indicator_variance = 9000; }).find("noise variances"), std::string::npos);
  EXPECT_NE(changed([](auto& terms) { terms.counts = 7; }).find("of 7 counts"), std::string::npos);
  EXPECT_NE(changed([](auto& terms) { terms.range /= 2; }).find("with noise they are up to"), std::string::npos);
  EXPECT_NE(changed([](auto& terms) { terms.exponent = -1; }).find("scale 2^-1"), std::string::npos);
  EXPECT_NE(changed([](auto& terms) { terms.clip = 0; }), "");
  EXPECT_NE(changed([](auto& terms) { terms.values = 5000; }), "") << "a finer grid needs a larger variance";
  EXPECT_EQ(changed([](auto& terms) { terms.clip = 4; }), "") << "in integers, the bound does not depend on it";
}

TEST_F(NodeNoiseTest, RefusesNoiseThatWasNotAgreedOn) {
  const auto plain = config({"privacy.unit=off", "privacy.noise_multiplier=0.0", "privacy.delta=0.0",
                             "privacy.clip=0.0", "privacy.epsilon=0.0", "secure_aggregation.colluders=0"});
  EXPECT_NE(refusal([&] { check_noise(context(), *plain); }).find("agreed on: without"), std::string::npos);
  auto without = context();
  without.variance = 0, without.clip = 0;
  EXPECT_EQ(refusal([&] { check_noise(without, *plain); }), "");
}

}  // namespace
}  // namespace evenkeel::flower
