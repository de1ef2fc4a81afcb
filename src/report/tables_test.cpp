// Tables of single runs.
#include "report/tables.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comparison/testing.h"

namespace evenkeel::report {
namespace {

/// Returns the text of a row in the column with a head.
std::string text_in(const Table& table, size_t row, std::string_view head) {
  const auto found = std::find(table.head.begin(), table.head.end(), head);
  return table.rows.at(row).at(static_cast<size_t>(found - table.head.begin())).text;
}

/// Makes the only client of a round withhold its work, as a node does that protects its rows.
void withhold(fed::RoundRecord& round) {
  auto& client = round.clients.at(0);
  client.privacy = train::PrivateReport{.withheld = true};
  client.tokens = 0, client.flops = 0, client.experts_per_token = 0, client.seconds = 0;
}

TEST(RunTables, WithheldWorkIsNoWorkOfZero) {
  std::vector runs{*testing::run_of("fedit", 1, -1).records};
  auto& rounds = runs[0].rounds;
  for (auto& round : rounds) {
    round.experts_per_token = 4.5;
    auto& client = round.clients.emplace_back();
    client.flops = 1e9, client.seconds = 2, client.experts_per_token = 4.5;
  }
  const auto of = [&](std::string_view table, size_t row, std::string_view head) {
    return text_in(tables(runs, table).at(0), row, head);
  };
  EXPECT_EQ(of("runs", 0, "tokens"), "60");
  withhold(rounds[0]);
  for (const auto* head : {"tokens", "FLOPs"}) {
    EXPECT_EQ(of("runs", 0, head), "-") << head << ": a sum over rounds lacks the first one";
    EXPECT_EQ(of("rounds", 0, head), "-") << head;
    EXPECT_NE(of("rounds", 1, head), "-") << head;
  }
  EXPECT_EQ(of("runs", 0, "bytes up"), "2.000 k");
  EXPECT_EQ(of("runs", 0, "experts/token"), "4.50") << "of the last round";
  EXPECT_EQ(of("clients", 0, "FLOPs"), "1.000 G");
  EXPECT_EQ(of("clients", 0, "seconds"), "2.00");
  withhold(rounds[1]);
  EXPECT_EQ(of("runs", 0, "experts/token"), "-");
  for (const auto* head : {"FLOPs", "seconds", "experts/token"}) EXPECT_EQ(of("clients", 0, head), "-") << head;
}

}  // namespace
}  // namespace evenkeel::report
