#include "methods/described_method.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::methods {
namespace {

Json description(const std::string& name) {
  return {{"name", name},
          {"title", "Own"},
          {"paper", "none"},
          {"sends", ""},
          {"file", "/own.py"},
          {"class", "Own"},
          {"sha256", std::string(64, '0')},
          {"base", "ffa-lora"},
          {"base_options", ""},
          {"hooks", {"aggregate"}},
          {"options",
           {{{"name", "decay"}, {"type", "float"}, {"default", 0.5}, {"help", "a share"}},
            {{"name", "names"}, {"type", "list[str]"}, {"default", {"a", "b"}}, {"help", ""}}}},
          {"metrics", {{"share", {0, 1}}}},
          {"seconds", 10}};
}

MethodEntry entry_of(const Json& json) { return described_entry(read_description(JsonView(json, "test"))); }

std::string written(const MethodEntry& entry, const std::string& toml) {
  config::Writer writer;
  entry.write(config::Table::parse(toml, "test"), writer);
  return writer.text();
}

TEST(DescribedMethod, ItsKeysAreReadAsAnyOther) {
  const auto json = description("own-keys");
  const auto entry = entry_of(json);
  EXPECT_EQ(written(entry, ""), "decay = 0.5\nnames = [\"a\", \"b\"]\n");
  EXPECT_EQ(written(entry, "decay = 2"), "decay = 2.0\nnames = [\"a\", \"b\"]\n");
  EXPECT_THROW(entry.make(config::Table::parse("decay = \"much\"", "test")), Error);
  EXPECT_THROW(entry.make(config::Table::parse("other = 1", "test")), Error);
}

TEST(DescribedMethod, WhatItDoesNotSayIsTheBaseMethods) {
  const auto json = description("own-base");
  const auto entry = entry_of(json);
  EXPECT_EQ(entry.family, find_method("ffa-lora").family);
  EXPECT_EQ(entry.sends, "B of every adapted weight");
  EXPECT_FALSE(entry.exact);  // it has an aggregate of its own
  EXPECT_EQ(entry.metrics[0].name, "share");
}

TEST(DescribedMethod, ItsMetricsAreAddedToTheBaseMethods) {
  auto json = description("own-metrics");
  json.update({{"base", "ub-smoe"}, {"metrics", {{"mine", {0, 10}}, {"pg_share", {0, 2}}}}});
  std::map<std::string_view, double> most;
  const auto entry = entry_of(json);
  for (const auto& metric : entry.metrics) EXPECT_TRUE(most.emplace(metric.name, metric.most).second) << metric.name;
  EXPECT_EQ(most.size(), find_method("ub-smoe").metrics.size() + 1);
  EXPECT_EQ(most.at("mine"), 10);
  EXPECT_EQ(most.at("pg_share"), 2) << "its own range";
  EXPECT_EQ(most.at("idle_share"), 1);
}

TEST(DescribedMethod, ItSaysWhetherItChangesTheBase) {
  auto json = description("own-change");
  EXPECT_FALSE(entry_of(json).changes_base);
  json["base"] = "flora";
  EXPECT_TRUE(entry_of(json).changes_base) << "as its base method";
  json["changes_base"] = false;
  EXPECT_FALSE(entry_of(json).changes_base);
  json.update({{"base", "fedit"}, {"changes_base", true}});
  EXPECT_TRUE(entry_of(json).changes_base);
}

TEST(DescribedMethod, ClientsTrainAtTheRankOfTheBaseMethod) {
  auto json = description("own-rank");
  json["base"] = "hetlora";
  const auto method = entry_of(json).make(config::Table::parse("", "test"));
  ServerState state;
  state.memory["rank/4"] = at::scalar_tensor(2, at::kLong);
  EXPECT_EQ(method->rank_of(state, {.id = 4, .rank = 3}), 2);
  EXPECT_EQ(method->rank_of(state, {.id = 5, .rank = 3}), 3);
}

TEST(DescribedMethod, OnlyOverriddenHooksNeedTheClass) {
  const auto json = description("own-hooks");
  const auto method = entry_of(json).make(config::Table::parse("", "test"));
  const lora::Sites sites{{"q_proj", {.experts = 0, .in = 3, .out = 2, .moe_layer = {}}}};
  const ServerView server{.sites = sites, .moe_layers = {}, .rank = 1, .scale = {.alpha = 1, .rank = 1}};
  const auto state = method->initialize(server);
  EXPECT_TRUE(state.common.fixed.at("q_proj").a.defined());  // FFA-LoRA's
  try {
    method->aggregate(server, state, {}, Uploads(std::vector<ClientUpdate>{}));
    FAIL() << "aggregate was called";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--method /own.py:Own"), std::string::npos) << error.what();
  }
}

TEST(DescribedMethod, AWrongDescriptionIsRefusedByItsPlace) {
  for (const auto& [key, value] :
       std::map<std::string, Json>{{"name", "A B"},
                                   {"base", "nothing"},
                                   {"hooks", {"train"}},
                                   {"family", "large"},
                                   {"seconds", "long"},
                                   {"changes_base", "yes"},
                                   {"options", {{{"name", "x"}, {"type", "complex"}, {"default", 0}, {"help", ""}}}}}) {
    auto json = description("own-wrong");
    json[key] = value;
    EXPECT_THROW(read_description(JsonView(json, "test", kCheckpoint)), Error) << key;
  }
}

TEST(DescribedMethod, TheFlagOfAClassNamesAFileThatExists) {
  const evenkeel::testing::TemporaryFolder folder;
  const auto file = (folder.path() / "own.py").string();
  EXPECT_TRUE(method_flag(file, "Own").empty());
  EXPECT_TRUE(method_flag("<notebook>", "Own").empty());
  write_file_atomic(file, "");
  EXPECT_EQ(method_flag(file, "Own"), (std::vector<std::string>{"--method", file + ":Own"}));
}

TEST(DescribedMethod, RunsMayHoldSeveralOfOneName) {
  auto json = description("own-several");
  know_described(JsonView(json, "one"));
  know_described(JsonView(json, "one"));
  json["options"] = Json::array();
  know_described(JsonView(json, "two"));
  EXPECT_EQ(find_method("own-several").described->options.size(), 0u);
  EXPECT_EQ(std::ranges::count(methods(), "own-several", &MethodEntry::name), 2);
}

}  // namespace
}  // namespace evenkeel::methods
