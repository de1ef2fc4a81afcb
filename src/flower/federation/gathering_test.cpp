// Tests when nodes are asked to join, with a grid that has no nodes behind it.
#include "flower/federation/gathering.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "flower/federation/grid_testing.h"

namespace evenkeel::flower {
namespace {

/// Returns the number of offers that a node has got after the first one ended with `outcome`.
int64_t offers_after(Arrival outcome) {
  const testing::TemporaryFolder folder;
  Roster roster(folder.path() / "members.json");
  SilentGrid grid;
  Fleet fleet{.grid = grid, .roster = roster, .folder = folder.path()};
  fleet.joining.offer = [](int64_t client) {
    return Offer{.run = {}, .client = client, .config = {}, .base = {}, .sites = {}};
  };
  fleet.joining.place_of = [](const NodeInfo&, std::span<const NodeInfo>, const std::set<int64_t>&) {
    return Place{.client = 0, .how = "arrival"};
  };
  Gathering gathering(fleet);
  gathering.attend();
  outcome.message_id = "message 1";
  gathering.on_reply(outcome);
  gathering.attend();
  return std::ssize(grid.lives());
}

TEST(Gathering, ANodeThatBeganAnewWhileItWasAskedIsAskedAtOnce) {
  EXPECT_EQ(
      offers_after({.kind = Arrival::Kind::kLost, .message_id = {}, .reason = "the node began anew", .left = true}), 2);
}

TEST(Gathering, ANodeThatDeclinesOrDoesNotAnswerIsAskedLater) {
  EXPECT_EQ(offers_after({.kind = Arrival::Kind::kError, .message_id = {}, .reason = "other rows"}), 1);
  EXPECT_EQ(offers_after({.kind = Arrival::Kind::kLost, .message_id = {}, .reason = "its reply came no further"}), 1);
}

}  // namespace
}  // namespace evenkeel::flower
