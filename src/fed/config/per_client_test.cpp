// Tests patterns of client numbers, and clients with tables of their own.
#include "fed/config/per_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "fed/config/run_config.h"
#include "fed/round/server.h"
#include "fed/store/run_request.h"

namespace evenkeel::fed {
namespace {

RunConfig settled(std::string_view text) {
  return settle(ExperimentConfig::read(config::Table::parse(text, "test.toml")), {});
}

std::vector<double> budgets_of(const RunConfig& config) {
  std::vector<double> budgets;
  for (const auto& plan : config.plans()) budgets.push_back(plan.budget);
  return budgets;
}

std::vector<int64_t> ranks_of(const RunConfig& config) {
  std::vector<int64_t> ranks;
  for (const auto& plan : config.plans()) ranks.push_back(plan.rank);
  return ranks;
}

std::string complaint_of(std::string_view text) {
  try {
    settled(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

std::map<double, int64_t> counted(const std::vector<double>& numbers) {
  std::map<double, int64_t> counts;
  for (const double number : numbers) ++counts[number];
  return counts;
}

TEST(PerClient, SharesBecomeCountsByLargestRemainder) {
  EXPECT_EQ(counts_by_share(std::array{24.0, 4.0, 2.0, 2.0}, 1000), (std::vector<int64_t>{750, 125, 63, 62}));
  EXPECT_EQ(counts_by_share(std::array{24.0, 4.0, 2.0, 2.0}, 32), (std::vector<int64_t>{24, 4, 2, 2}));
  EXPECT_EQ(counts_by_share(std::array{1.0, 1.0, 1.0}, 5), (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(counts_by_share(std::array{0.1, 0.2, 0.7}, 10), (std::vector<int64_t>{1, 2, 7}));
  EXPECT_EQ(counts_by_share(std::array{5.0, 1.0}, 1), (std::vector<int64_t>{1, 0}));
  for (int64_t clients = 1; clients < 200; ++clients) {
    const auto counts = counts_by_share(std::array{0.37, 0.011, 0.3, 0.319}, clients);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), clients);
  }
}

TEST(PerClient, PatternsOfAThousandClientsTakeOneLine) {
  const auto config =
      settled("[clients]\ncount = 1000\nbudgets = { values = [0.125, 0.25, 0.5, 1.0], shares = [24, 4, 2, 2] }\n");
  EXPECT_EQ(counted(budgets_of(config)), (std::map<double, int64_t>{{0.125, 750}, {0.25, 125}, {0.5, 63}, {1.0, 62}}));
  EXPECT_LT(config->text().size(), 4000u);
  EXPECT_EQ(settled(config->text())->text(), config->text());
  EXPECT_EQ(budgets_of(settled(config->text())), budgets_of(config));
}

TEST(PerClient, DealsBySeedOrInOrder) {
  const std::string by = "[clients]\ncount = 40\nbudgets = { values = [0.25, 1.0], shares = [3, 1]";
  const auto order = budgets_of(settled(by + ", deal = \"order\" }"));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  const auto first = budgets_of(settled(by + " }")), other = budgets_of(settled("seed = 7\n" + by + " }"));
  EXPECT_EQ(counted(first), counted(order));
  EXPECT_EQ(counted(other), counted(order));
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_NE(first, other);
  EXPECT_EQ(budgets_of(settled(by + " }")), first);
}

TEST(PerClient, RanksFollowABudgetPattern) {
  const std::string budgets = "[clients]\ncount = 12\nbudgets = { values = [0.125, 1.0], shares = [2, 1] }\n";
  const auto derived = settled(budgets + "[method]\nname = \"flexlora\"\n");
  const auto said = settled(budgets + "ranks = { values = [6, 20], shares = [2, 1] }\n");
  const auto weak = budgets_of(derived);
  for (size_t i = 0; i < weak.size(); ++i) {
    EXPECT_EQ(ranks_of(derived)[i], weak[i] == 1.0 ? 20 : 6);
    EXPECT_EQ(ranks_of(said)[i], ranks_of(derived)[i]);
  }
}

TEST(PerClient, SharesDefaultToEqual) {
  EXPECT_EQ(budgets_of(settled("[clients]\ncount = 5\nbudgets = { values = [0.5, 1.0], deal = \"order\" }")),
            (std::vector<double>{0.5, 0.5, 0.5, 1.0, 1.0}));
}

TEST(PerClient, ErrorsInAPatternNameTheLine) {
  const auto refused = [](std::string_view budgets) { return complaint_of(concat("[clients]\nbudgets = ", budgets)); };
  EXPECT_EQ(refused("{ values = [0.5, 1.5] }"),
            "[config] clients.budgets.values is 1.5, allowed: greater than 0, at most 1 (test.toml, line 2)");
  EXPECT_EQ(refused("{ values = [0.5, 1.0], shares = [3] }"),
            "[config] clients.budgets.shares is [3], allowed: one per value, of which there are 2 (test.toml, line 2)");
  EXPECT_EQ(refused("{ values = [0.5], shares = [0] }"),
            "[config] clients.budgets.shares is 0, allowed: above 0, up to 1e+06 (test.toml, line 2)");
  EXPECT_EQ(refused("{ shares = [3] }"),
            "[config] clients.budgets.values is empty, allowed: one value or more (test.toml)");
  EXPECT_EQ(refused("{ values = [0.5], deal = \"turns\" }"),
            "[config] clients.budgets.deal is \"turns\", allowed: seed, order (test.toml, line 2)");
  EXPECT_EQ(complaint_of("[clients]\nranks = { values = [4, 21] }"),
            "[config] clients.ranks.values holds 21, allowed: 1 .. lora.rank = 20 (test.toml, line 2)");
}

TEST(PerClient, ADifferentPatternIsReportedByItsKey) {
  const auto run = settled("[clients]\nbudgets = { values = [0.5, 1.0], shares = [3, 1] }");
  const auto asked = settled("[clients]\nbudgets = { values = [0.5, 1.0], shares = [1, 1] }");
  const auto changes = difference_lines(asked, run);
  ASSERT_EQ(changes.size(), 2u);  // budgets and the ranks that follow from them
  EXPECT_EQ(changes[0], "clients.budgets.shares is [1.0, 1.0], in the run [3.0, 1.0]");
}

constexpr std::string_view kThree = R"([data]
task = "builtin"
[clients]
[[clients.client]]
name = "north"
budget = 0.25
[[clients.client]]
[[clients.client]]
name = "south"
rank = 7
)";

TEST(ClientTables, SetNumberAndOwnKeysOfClients) {
  const auto config = settled(kThree);
  EXPECT_EQ(config->clients.count, 3);
  EXPECT_EQ(budgets_of(config), (std::vector<double>{0.25, 0.25, 0.5}));
  EXPECT_EQ(ranks_of(config), (std::vector<int64_t>{20, 20, 7}));
  EXPECT_EQ(config->clients.who(0), "client 0 (north)");
  EXPECT_EQ(config->clients.who(1), "client 1");
  EXPECT_EQ(settled(config->text())->text(), config->text());
}

TEST(ClientTables, OneClientsBudgetOverridesAPattern) {
  const auto config =
      settled("[clients]\nbudgets = { values = [0.5] }\n[[clients.client]]\n[[clients.client]]\nbudget = 1.0\n");
  EXPECT_EQ(budgets_of(config), (std::vector<double>{0.5, 1.0}));
}

TEST(ClientTables, ErrorsNameTheClientAndTheLine) {
  const auto refused = [](std::string_view clients) { return complaint_of(concat("[clients]\n", clients)); };
  EXPECT_EQ(refused("[[clients.client]]\nname = \"a\"\n[[clients.client]]\nname = \"a\"\n"),
            "[config] clients.client[1] has the name \"a\", as has [0]: names tell clients apart (test.toml, line 5)");
  EXPECT_EQ(
      refused("[[clients.client]]\nname = \"a\"\nbudget = 1.5\n"),
      "[config] clients.client[0].budget of \"a\" is 1.5, allowed: greater than 0, at most 1 (test.toml, line 4)");
  EXPECT_EQ(refused("[[clients.client]]\nname = \"a\"\nrank = 21\n"),
            "[config] clients.client[0].rank of client 0 (a) is 21, allowed: 1 .. lora.rank = 20 (test.toml, line 4)");
  EXPECT_EQ(refused("count = 2\n[[clients.client]]\nname = \"a\"\n"),
            "[config] clients.count is 2, allowed: 1, as many as there are [[clients.client]] (test.toml, line 2)");
  EXPECT_EQ(refused("[[clients.client]]\nname = \"a\"\ndata = \"a.json\"\n[[clients.client]]\nname = \"b\"\n"),
            "[config] clients.client: client 1 (b) has no `data`, client 0 (a) has: either every client brings rows of "
            "its own, or those of [data] are dealt out to all (test.toml)");
  EXPECT_EQ(refused("[[clients.client]]\nname = \"a\"\ndata = \"a.json\"\nheld_out = 1.0\n"),
            "[config] clients.client[0].held_out of \"a\" is 1, allowed: 0 or more, less than 1 (test.toml, line 5)");
  EXPECT_EQ(
      refused("[[clients.client]]\nname = \"a\"\ntest = \"a.json\"\n"),
      "[config] clients.client[0].test of \"a\" names test rows, allowed: beside `data`, training rows of its own "
      "(test.toml, line 4)");
  EXPECT_NE(refused("[[clients.client]]\nname = \"a\\u001b\"\n").find("printable"), std::string::npos);
}

TEST(ClientTables, WithOwnRowsSetTheFilesOfTheTask) {
  const std::string own = "[[clients.client]]\nname = \"a\"\ndata = \"a.json\"\n";
  EXPECT_EQ(complaint_of(own),
            "[config] data.task is \"builtin\", allowed: files, where every [[clients.client]] brings rows of its own "
            "(test.toml)");
  const std::string files = "[data]\ntask = \"files\"\n";
  EXPECT_EQ(
      complaint_of(files + "partition = { kind = \"dirichlet\" }\n" + own),
      "[config] data.partition.kind is \"dirichlet\", allowed: nothing else than iid, which deals out nothing where "
      "every [[clients.client]] brings rows of its own (test.toml, line 3)");
  EXPECT_EQ(complaint_of(files + "files = { train = \"b.json\" }\n" + own),
            "[config] data.files is naming files, allowed: format, score and the like, where every [[clients.client]] "
            "brings rows of its own (test.toml, line 3)");
  const auto config = settled(files + own);
  EXPECT_EQ(config->evaluate.tasks, std::vector<std::string>{"files"});
  EXPECT_EQ(config.plan(0).rows->train, std::vector<std::string>{"a.json"});
  EXPECT_EQ(settled(config->text())->text(), config->text());
  EXPECT_NE(complaint_of("[evaluate]\nper_client = true\n").find("evaluate.per_client is true, allowed: where clients"),
            std::string::npos);
}

TEST(ClientTables, ABudgetWithoutExpertsNamesTheClient) {
  const auto config = settled("[[clients.client]]\nname = \"weak\"\nbudget = 0.1\n");
  models::ModelSpec spec;
  spec.num_experts = 64;
  spec.top_k = 8;
  try {
    make_clients(config, spec, {});
    FAIL() << "no expert is left, and nobody says so";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("clients.budgets[0], of client 0 (weak), is 0.1"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace evenkeel::fed
