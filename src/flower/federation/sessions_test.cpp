// Tests what an exchange asks of the grid, with a grid that has no nodes behind it.
#include "flower/federation/sessions.h"

#include <gtest/gtest.h>

#include "base/format/limits.h"
#include "base/testing.h"

namespace evenkeel::flower {
namespace {

/// A grid of one node, which is online and never answers.
class SilentGrid : public Grid {
 public:
  std::vector<NodeInfo> nodes() override {
    NodeInfo node;
    node.id = 7;
    node.name = "site";
    node.fingerprint = "SHA256:site";
    node.online = true;
    return {node};
  }
  std::string send(uint64_t /*node*/, const Content& /*content*/, SendOptions options) override {
    lives_.push_back(options.ttl_s);
    return concat("message ", lives_.size());
  }
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point /*deadline*/) override { return {}; }
  void forget(const std::string& /*message_id*/) override {}

  /// Seconds that each message which was sent may live.
  const std::vector<double>& lives() const { return lives_; }

 private:
  std::vector<double> lives_{};
};

TEST(Sessions, ATaskLivesLongerThanTheLongestDeadline) {
  const testing::TemporaryFolder folder;
  Roster roster(folder.path() / "members.json");
  roster.add({.client = 0, .key = "SHA256:site", .name = "site", .program = {}});
  const fed::Exchange exchange{
      .task_of = [](const methods::ClientProfile& client) { return fed::Task{.client = client}; },
      .on_reply = [](const fed::Reply&) {}};
  for (const double deadline : {0.0, limits::kScale}) {
    SilentGrid grid;
    Fleet fleet{.grid = grid, .roster = roster, .folder = folder.path(), .terms = {.deadline_s = deadline}};
    fleet.agreed.insert(0);
    Sessions sessions(fleet, exchange);
    sessions.begin({.id = 0});
    sessions.run([&] { return !grid.lives().empty(); });
    EXPECT_GT(grid.lives().at(0), limits::kScale) << "with a deadline of " << deadline;
  }
}

}  // namespace
}  // namespace evenkeel::flower
