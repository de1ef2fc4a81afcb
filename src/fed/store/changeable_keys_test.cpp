#include "fed/store/changeable_keys.h"

#include <gtest/gtest.h>

#include "fed/config/arithmetic.h"
#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

ExperimentConfig config_of(const std::vector<std::string>& settings) {
  auto table = config::Table::parse("", "a test");
  for (const auto& setting : settings) table.set(setting);
  return ExperimentConfig::read(table);
}

RunConfig settled(const std::vector<std::string>& settings) { return settle(config_of(settings), {}); }

TEST(ChangeableKeys, AreKeysOfTheConfigAndTakeTheirValues) {
  const auto from =
      config_of({"clients.deadline=7.5", "clients.quorum=3", "clients.most_examples=90", "clients.update_norm=2.5",
                 "clients.update_ratio=7", "clients.bound_simulated=true", "clients.assign=arrival",
                 "clients.on_change=record", "evaluate.every=4", "evaluate.budgets=[0.25]", "evaluate.limit=11"});
  for (const auto key : changeable_keys()) {
    if (key.find('[') != key.npos) continue;  // of a list of tables: the next test
    auto to = config_of({});
    const auto known = to.values();
    ASSERT_TRUE(known.contains(std::string(key))) << key;
    const ChangedKey change{.key = std::string(key), .asked = {}, .run = {}};
    take_values(std::span(&change, 1), from, to);
    for (const auto& [other, value] : to.values())
      EXPECT_EQ(value, other == key ? from.values().at(other) : known.at(other))
          << other << " when " << key << " changes";
  }
}

TEST(ChangeableKeys, AClientMayBeLeftOut) {
  const std::string clients = "clients.client=[{name=\"a\"}, {name=\"b\"";
  const auto from = config_of({"clients.count=2", clients + ", until=3}]"});
  auto to = config_of({"clients.count=2", clients + "}]"});
  const ChangedKey change{.key = "clients.client[1].until", .asked = "3", .run = {}};
  EXPECT_EQ(why_not_changeable(change.key, settled({"clients.count=2", clients + "}]"}), 30), "");
  EXPECT_NE(why_not_changeable("clients.client[1].name", settled({}), 0), "");
  take_values(std::span(&change, 1), from, to);
  EXPECT_EQ(to.clients.until(1), 3);
  EXPECT_FALSE(to.clients.until(0));
}

TEST(ChangeableKeys, BoundsMayAlwaysChange) {
  const auto compared = settled({"evaluate.every=1", "evaluate.keep_best=true"});
  for (const auto* key : {"clients.deadline", "clients.quorum", "clients.most_examples", "clients.update_norm"})
    EXPECT_EQ(why_not_changeable(key, compared, 30), "") << key;
}

TEST(ChangeableKeys, ScoresThatAreComparedStayComparable) {
  const auto plain = settled({}), compared = settled({"evaluate.every=1", "train.stop.patience=2"});
  for (const auto* key : {"evaluate.every", "evaluate.budgets", "evaluate.per_client"}) {
    EXPECT_EQ(why_not_changeable(key, plain, 30), "") << key;
    EXPECT_NE(why_not_changeable(key, compared, 0), "") << key;
  }
  EXPECT_EQ(why_not_changeable("evaluate.limit", plain, 0), "");
  EXPECT_NE(why_not_changeable("evaluate.limit", plain, 1).find("1 scores are recorded"), std::string::npos);
}

TEST(ChangeableKeys, OthersMustNotChange) {
  for (const auto* key :
       {"seed", "train.optimizer.lr", "evaluate.max_new_tokens", "clients.participation", "no.such.key"})
    EXPECT_NE(why_not_changeable(key, settled({}), 0), "") << key;
}

}  // namespace
}  // namespace evenkeel::fed
