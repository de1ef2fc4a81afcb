#include "flower/federation/placement.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "flower/federation/own_content.h"

namespace evenkeel::flower {
namespace {

std::string print_of(char letter) { return concat("SHA256:", std::string(42, letter), "A"); }

/// Clients of a run: north has a key, hill has a name, the third has neither.
fed::ClientsSection three_clients(const std::string& more = "") {
  const auto text =
      concat("[clients]\nbudgets = [0.25, 0.5, 1.0]\n", more, "\n[[clients.client]]\nname = \"north\"\nkey = \"",
             print_of('n'), "\"\n[[clients.client]]\nname = \"hill\"\n[[clients.client]]\n");
  return fed::ExperimentConfig::read(config::Table::parse(text, "unit.toml")).clients;
}

NodeInfo some_node(uint64_t id, const std::string& name, const std::string& fingerprint,
                   const std::string& replaces = "") {
  NodeInfo info;
  info.id = id;
  info.name = name;
  info.fingerprint = fingerprint;
  info.replaces = replaces;
  info.online = true;
  return info;
}

class Placement : public ::testing::Test {
 protected:
  Place place(const NodeInfo& one, const fed::ClientsSection& of, const std::vector<NodeInfo>& others = {}) {
    std::set<int64_t> taken;
    for (const auto& [client, member] : roster_.members()) taken.insert(client);
    auto all = others;
    all.push_back(one);
    return place_of(one, all, of, roster_, taken);
  }
  void join(int64_t client, const std::string& with) {
    roster_.add({.client = client, .key = with, .name = "x", .program = {}});
  }

  testing::TemporaryFolder folder_;
  Roster roster_{folder_.path() / "members.json"};
};

TEST_F(Placement, AClientIsItsKeyWhateverItsNodeIsCalled) {
  const auto found = place(some_node(7, "north.hospital.example", print_of('n')), three_clients());
  EXPECT_EQ(found.client, 0);
  EXPECT_EQ(found.how, "key");
  EXPECT_EQ(place(some_node(7, "hill", print_of('n')), three_clients()).client, 0);
}

TEST_F(Placement, NoOtherKeyMayBeAClientWithAKey) {
  for (const auto* rule : {"", "assign = \"arrival\""}) {
    const auto found = place(some_node(7, "north", print_of('x')), three_clients(rule));
    EXPECT_EQ(found.client, std::nullopt) << rule;
    EXPECT_NE(found.refusal.find(concat("client 0 (north), whose key is ", print_of('n'))), std::string::npos)
        << found.refusal;
    EXPECT_NE(found.refusal.find(print_of('x')), std::string::npos) << found.refusal;
  }
}

TEST_F(Placement, AClientWithANameAloneIsTheNodeOfThatName) {
  EXPECT_EQ(place(some_node(7, "hill", print_of('h')), three_clients()).client, 1);
  EXPECT_EQ(place(some_node(7, "hill", print_of('h')), three_clients()).how, "name");
}

TEST_F(Placement, AnUnknownNodeTakesAClientWithoutKeyAndNameOnly) {
  EXPECT_EQ(place(some_node(7, "hill.hospital.example", print_of('h')), three_clients()).client, 2);
  join(2, print_of('z'));
  const auto refused = place(some_node(7, "hill.hospital.example", print_of('h')), three_clients());
  EXPECT_EQ(refused.client, std::nullopt);
  for (const auto* said : {"\"hill.hospital.example\"", "[[clients.client]]", "list of keys"})
    EXPECT_NE(refused.refusal.find(said), std::string::npos) << refused.refusal;
  EXPECT_NE(refused.refusal.find(concat("key = \"", print_of('h'), "\"")), std::string::npos) << refused.refusal;
}

TEST_F(Placement, ArrivalDealsOutClientsWithoutKeyWithAWarning) {
  join(2, print_of('z'));
  const auto by_arrival = three_clients("assign = \"arrival\"");
  const auto found = place(some_node(7, "hill.hospital.example", print_of('h')), by_arrival);
  EXPECT_EQ(found.client, 1);
  EXPECT_EQ(found.how, "arrival");
  EXPECT_NE(found.warning.find("hill.hospital.example becomes client 1 (hill)"), std::string::npos) << found.warning;
  EXPECT_EQ(place(some_node(7, "other", print_of('o')), by_arrival, {some_node(8, "hill", print_of('h'))}).client,
            std::nullopt)
      << "a node with the client's name may still come";
}

TEST_F(Placement, AGridWithoutNamesAndKeysIsToldWhatToDo) {
  join(2, "node 5");
  const auto refused = place(some_node(7, "node 7", ""), three_clients());
  EXPECT_NE(refused.refusal.find("clients.assign = \"arrival\""), std::string::npos) << refused.refusal;
  EXPECT_EQ(place(some_node(7, "node 7", ""), three_clients("assign = \"arrival\"")).client, 1);
}

TEST_F(Placement, WithoutKeysAndNamesClientsAreTakenInOrder) {
  fed::ClientsSection plain;
  plain.count = 2;
  EXPECT_EQ(place(some_node(7, "b", print_of('b')), plain).client, 0);
  join(0, print_of('b'));
  EXPECT_EQ(place(some_node(8, "a", print_of('a')), plain).client, 1);
  join(1, print_of('a'));
  const auto spare = place(some_node(9, "c", print_of('c')), plain);
  EXPECT_EQ(spare.client, std::nullopt);
  EXPECT_EQ(spare.refusal, "") << "it waits";
}

TEST_F(Placement, AKeyThatReplacesTheConfiguredOneIsTheClient) {
  EXPECT_EQ(place(some_node(7, "new", print_of('x'), print_of('n')), three_clients()).client, 0);
}

TEST_F(Placement, AKeyOfItsOwnComesBeforeTheOneThatItReplaces) {
  auto of = three_clients();
  of.client[2].key = print_of('x');
  EXPECT_EQ(place(some_node(7, "new", print_of('x'), print_of('n')), of).client, 2);
}

TEST_F(Placement, ANameDoesNotHandOverAClientThatHasJoined) {
  join(1, print_of('h'));
  const auto refused = place(some_node(7, "hill", print_of('x')), three_clients());
  EXPECT_EQ(refused.client, std::nullopt);
  EXPECT_NE(refused.refusal.find(concat("write replaces=", print_of('h'))), std::string::npos) << refused.refusal;
}

TEST_F(Placement, TheNodeOfAReplacedKeyIsRecordedWithTheRound) {
  join(0, print_of('n'));
  roster_.hand_over(std::vector{some_node(7, "north-2", print_of('x'), print_of('n'))}, 4);
  const Roster again(folder_.path() / "members.json");
  const auto& member = again.members().at(0);
  EXPECT_EQ(member.key, print_of('x'));
  EXPECT_EQ(member.name, "north-2");
  ASSERT_EQ(member.changes.size(), 1u);
  EXPECT_EQ(member.changes[0].after_round, 4);
  EXPECT_EQ(member.changes[0].what, "key");
  EXPECT_EQ(member.changes[0].was, print_of('n'));
  EXPECT_TRUE(roster_.hand_over(std::vector{some_node(7, "north-2", print_of('x'), print_of('n'))}, 5).empty())
      << "it is done";
}

TEST(ContentDigests, ChangedPartsAreNamedAndAllAtOnceMayBeALostSalt) {
  const ContentDigests joined{.rows = "r", .tests = "e", .tested = 3, .base = "b", .tokenizer = "t"};
  const auto parts = [&](const std::function<void(ContentDigests&)>& change) {
    auto now = joined;
    change(now);
    return changed_parts(joined, now);
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts([](auto&) {}), Parts{});
  EXPECT_EQ(parts([](auto& now) { now.rows = "r2"; }), Parts{"rows"});
  EXPECT_EQ(parts([](auto& now) { now.tests = "e2"; }), Parts{"test rows"});
  EXPECT_EQ(parts([](auto& now) { now.tests = "e2", now.tested = 2; }), Parts{}) << "its scores are refused";
  EXPECT_EQ(parts([](auto& now) { now.base = "b2", now.tokenizer = "t2"; }), (Parts{"base", "tokenizer"}));
  EXPECT_EQ(changed_parts({}, joined), Parts{}) << "nothing is known of what it joined with";
  EXPECT_EQ(changed_parts(joined, {}).size(), 3u) << "a node that hides what it has is no more what it was";
  EXPECT_NE(change_text({"rows", "base", "tokenizer"}).find("memory folder"), std::string::npos);
  EXPECT_NE(change_text({"rows"}).find("rows"), std::string::npos);
}

TEST(ContentDigests, TheSaltOfARunIsKeptAndIsAnotherInEachRunAndFolder) {
  const testing::TemporaryFolder folder;
  const auto salt = salt_of_run(folder.path() / "a", "run");
  EXPECT_EQ(salt.size(), 64u);
  EXPECT_EQ(salt_of_run(folder.path() / "a", "run"), salt);
  EXPECT_NE(salt_of_run(folder.path() / "a", "other"), salt);
  EXPECT_NE(salt_of_run(folder.path() / "b", "run"), salt);
  EXPECT_EQ(salt_of_run({}, "run"), salt_of_run({}, "run"));
}

}  // namespace
}  // namespace evenkeel::flower
