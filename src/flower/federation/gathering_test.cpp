// Tests when nodes are asked to join, with a grid that has no nodes behind it.
#include "flower/federation/gathering.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel::flower {
namespace {

/// A grid of one node, which is online, and counts the messages to it.
class CountingGrid : public Grid {
 public:
  std::vector<NodeInfo> nodes() override {
    NodeInfo node;
    node.id = 7;
    node.name = "site";
    node.fingerprint = "SHA256:site";
    node.online = true;
    return {node};
  }
  std::string send(uint64_t /*node*/, const Content& /*content*/, SendOptions /*options*/) override {
    return concat("message ", ++sent_);
  }
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point /*deadline*/) override { return {}; }
  void forget(const std::string& /*message_id*/) override {}
  int sent() const { return sent_; }

 private:
  int sent_ = 0;
};

/// Returns the number of offers that a node has got after the first one ended with `outcome`.
int offers_after(Arrival outcome) {
  const testing::TemporaryFolder folder;
  Roster roster(folder.path() / "members.json");
  CountingGrid grid;
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
  return grid.sent();
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
