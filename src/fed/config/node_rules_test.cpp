// The keys of [clients] that say which nodes are the clients of a run, and how long a client takes part.
#include <gtest/gtest.h>

#include "fed/config/run_config.h"
#include "fed/round/server.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kKey = "SHA256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
constexpr std::string_view kOther =
    "SHA256://////////////////////////////////////////9";  // its last digit is not canonical

ExperimentConfig config_of(const std::string& text) {
  return ExperimentConfig::read(config::Table::parse(text, "test.toml"));
}

std::string why_refused(const std::string& text) {
  try {
    config_of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

/// Three clients, each with these keys.
std::string three(const std::string& first, const std::string& second, const std::string& third,
                  const std::string& clients = "") {
  std::string text = concat("[clients]\nbudgets = [0.25, 0.5, 1.0]\n", clients, "\n");
  for (const auto& keys : {first, second, third}) text += concat("[[clients.client]]\n", keys, "\n");
  return text;
}

TEST(ClientKeys, AFingerprintIsReadAsKeygenPrintsIt) {
  const auto config = config_of(three(concat("key = \"", kKey, "\""), "name = \"hill\"", ""));
  EXPECT_EQ(config.clients.key(0), kKey);
  EXPECT_EQ(config.clients.key(1), "");
  EXPECT_EQ(config.clients.key(9), "");
  const auto again = config_of(settle(config, {})->text());
  EXPECT_EQ(again.clients.key(0), kKey);
}

TEST(ClientKeys, AnyOtherTextIsRefused) {
  const std::string good(kKey);
  for (const std::string& bad :
       {std::string("SHA256:"), good.substr(7), good + "=", good.substr(0, 49), good + "A", "MD5:" + good.substr(7),
        " " + good, "sha256:" + good.substr(7), good.substr(0, 40) + "-" + good.substr(41), std::string(kOther)}) {
    const auto line = why_refused(three(concat("name = \"north\"\nkey = \"", bad, "\""), "", ""));
    EXPECT_NE(line.find("clients.client[0].key of \"north\" is "), std::string::npos) << bad << ": " << line;
    EXPECT_NE(line.find("SHA256:"), std::string::npos) << line;
  }
}

TEST(ClientKeys, OneKeyIsOneClient) {
  const auto key = concat("key = \"", kKey, "\"");
  const auto line = why_refused(three(key, "", key));
  EXPECT_NE(line.find(concat("[2] has the key \"", kKey, "\", as has [0]: a key is one client")), std::string::npos)
      << line;
}

TEST(ClientKeys, TheRunMayBeginWithFewerClientsThanItHas) {
  EXPECT_EQ(config_of(three("", "", "", "start = 2")).clients.start, 2);
  for (const auto* bad :
       {"start = 4", "start = -1", "start = 1\nquorum = 2", "start = 2\nparticipation = 0.5\nquorum = 2"})
    EXPECT_NE(why_refused(three("", "", "", bad)).find("clients.start"), std::string::npos) << bad;
}

TEST(ClientKeys, AClientIsLeftOutAfterItsLastRound) {
  const auto asked = config_of(three("", "until = 2", "until = 0"));
  const auto config = settle(asked, {});
  const auto clients = make_clients(config, models::ModelSpec{}, {});
  EXPECT_TRUE(clients[0].may_be_drawn(1'000'000));
  EXPECT_TRUE(clients[1].may_be_drawn(1) && !clients[1].may_be_drawn(2));
  EXPECT_TRUE(clients[1].is_scored_after(2) && !clients[1].is_scored_after(3));
  EXPECT_FALSE(clients[2].may_be_drawn(0));
}

TEST(ClientKeys, ThoseWhoAreLeftReachTheQuorum) {
  EXPECT_EQ(why_refused(three("until = 1", "", "", "quorum = 2")), "accepted");
  EXPECT_NE(
      why_refused(three("until = 1", "until = 4", "", "quorum = 2")).find("until = 4 leaves 1 clients in round 5"),
      std::string::npos);
  EXPECT_NE(why_refused(three("until = 1", "until = 4", "until = 4")).find("leaves 0 clients"), std::string::npos);
  EXPECT_NE(why_refused(three("until = -1", "", "")).find("until"), std::string::npos);
}

TEST(ClientKeys, TheFewestWhoAreDrawnSatisfyRuleAndMasks) {
  const std::string rule = "\n[method]\nname = \"fedit\"\n[aggregation]\nrule = \"trimmed_mean\"\ntrim = 0.34";
  EXPECT_EQ(why_refused(three("", "", "", rule)), "accepted");
  EXPECT_NE(why_refused(three("until = 1", "", "", rule)).find("one of the 2 clients"), std::string::npos);
  EXPECT_NE(why_refused(three("", "", "", concat("start = 1", rule))).find("one of the 1 clients"), std::string::npos);
  const std::string masks = "\n[method]\nname = \"fedit\"\n[secure_aggregation]\nmode = \"masks\"";
  EXPECT_EQ(why_refused(three("", "", "", masks)), "accepted");
  EXPECT_NE(why_refused(three("until = 1", "", "", masks)).find("with 2 clients drawn per round"), std::string::npos);
  EXPECT_NE(why_refused(three("", "", "", concat("start = 2", masks))).find("with 2 clients drawn"), std::string::npos);
}

TEST(ClientKeys, WordsForTheRulesOfNodesAreReadOrRefused) {
  const auto config = config_of(three("", "", "", "assign = \"arrival\"\non_change = \"record\""));
  EXPECT_EQ(config.clients.assign, Placement::kArrival);
  EXPECT_EQ(config.clients.on_change, OnChange::kRecord);
  EXPECT_NE(why_refused(three("", "", "", "assign = \"any\"")).find("named, arrival"), std::string::npos);
  EXPECT_NE(why_refused(three("", "", "", "on_change = \"\"")).find("refuse, record"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::fed
