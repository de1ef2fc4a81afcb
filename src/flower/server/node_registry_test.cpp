#include "flower/server/node_registry.h"

#include <gtest/gtest.h>

#include "base/plain/sealed.h"
#include "flower/http/http_server.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

TEST(Registry, KeepsItsIdsOverARestart) {
  const testing::Keys keys(2);
  const auto options = testing::options_for(keys);
  const Registry first(options), again(options);
  EXPECT_EQ(first.run_id(), again.run_id());
  EXPECT_EQ(first.id_of(keys.allowed[1].key), again.id_of(keys.allowed[1].key));
  EXPECT_EQ(again.nodes().size(), 2u);
}

/// Returns what a registry says of a file whose seal is right, but not its content.
template <typename Change>
std::string refusal_of(const Change& change) {
  const testing::Keys keys(2);
  const auto options = testing::options_for(keys);
  { const Registry made(options); }
  const auto file = options.folder / "nodes.json";
  auto json = OrderedJson(read_sealed(file));
  change(json);
  write_sealed(file, json, 1);
  return testing::refusal([&] { const Registry registry(options); });
}

TEST(Registry, AnIdThatIsNoNumberIsRefusedInOneLine) {
  for (const auto* id : {"", "x", "12x", " 12", "+12", "-12", "1.5", "0x12", "0", "1", "9223372036854775808",
                         "18446744073709551616", "99999999999999999999999"}) {
    const auto run = refusal_of([&](OrderedJson& json) { json["run"] = id; });
    EXPECT_NE(run.find(concat("nodes.json: run is \"", id, "\", allowed: 2 to ")), std::string::npos) << run;
    const auto node = refusal_of([&](OrderedJson& json) { json["nodes"][1]["id"] = id; });
    EXPECT_NE(node.find(concat("nodes.json: nodes[1].id is \"", id, "\", allowed: 2 to ")), std::string::npos) << node;
    EXPECT_EQ(node.find('\n'), std::string::npos);
  }
  EXPECT_NE(refusal_of([](OrderedJson& json) { json["run"] = 12; }).find("run is 12"), std::string::npos);
  EXPECT_EQ(refusal_of([](OrderedJson& json) { json["run"] = "9223372036854775807"; }), "no error");
}

TEST(Registry, TwoNodesOfOneIdOrKeyAreRefused) {
  const auto id = refusal_of([](OrderedJson& json) { json["nodes"][1]["id"] = json["nodes"][0]["id"]; });
  EXPECT_NE(id.find("nodes[1] has the id or the key of an earlier node"), std::string::npos) << id;
  const auto key = refusal_of([](OrderedJson& json) { json["nodes"][1]["key"] = json["nodes"][0]["key"]; });
  EXPECT_NE(key.find("nodes[1] has the id or the key of an earlier node"), std::string::npos) << key;
}

/// Returns the HTTP status of the refusal of `call`, or 0.
template <typename Call>
int status_of(const Call& call) {
  try {
    call();
    return 0;
  } catch (const Refusal& refusal) {
    return refusal.status;
  }
}

/// The messages of the earlier process are lost there: a process that is refused must not lose those of the other.
TEST(Registry, WhatPrecedesActivationIsDoneForANodeThatIsNotRefused) {
  const testing::Keys keys(1);
  Registry registry(testing::options_for(keys));
  const uint64_t node = registry.id_of(keys.allowed[0].key).value();
  int calls = 0;
  const auto count = [&] { ++calls; };
  EXPECT_EQ(status_of([&] { registry.activate(node, 1, "", count); }), 400);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(status_of([&] { registry.activate(node, 30, "", count); }), 0);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(status_of([&] { registry.activate(node, 30, "", count); }), 412);
  EXPECT_EQ(calls, 1);
}

TEST(Registry, AnIdThatIsNotRegisteredIsRefused) {
  const testing::Keys keys(2);
  auto options = testing::options_for(keys);
  options.open = true;
  Registry registry(options);
  const uint64_t node = registry.id_of(keys.allowed[0].key).value();
  registry.remove(node);
  EXPECT_EQ(status_of([&] { registry.activate(node, 30, ""); }), 401);
  EXPECT_EQ(status_of([&] { registry.sign_off(node); }), 401);
  EXPECT_EQ(status_of([&] { registry.remove(node); }), 401);
  EXPECT_EQ(status_of([&] { registry.set_heartbeat_interval(node, 30); }), 401);
  EXPECT_EQ(status_of([&] { registry.record_call(node, "evenkeel 1.0", ""); }), 401);
  EXPECT_EQ(status_of([&] { registry.charge(node); }), 401);
  registry.uncharge(node);
  registry.record_refusal(node, "a call too many");
  EXPECT_FALSE(registry.online(node));
  EXPECT_EQ(registry.name(node), "?");
  EXPECT_EQ(registry.nodes().size(), 1u);
}

}  // namespace
}  // namespace evenkeel::flower
