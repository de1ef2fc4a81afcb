// Tests what an exchange asks of the grid, with a grid that has no nodes behind it.
#include "flower/federation/sessions.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "base/format/limits.h"
#include "base/format/record.h"
#include "base/testing.h"
#include "flower/federation/grid_testing.h"

namespace evenkeel::flower {
namespace {

/// A grid whose node answers the first message, and no other.
class AnsweringGrid : public SilentGrid {
 public:
  explicit AnsweringGrid(Envelope answer) : answer_(std::move(answer)) {}
  std::string send(uint64_t node, const Content& content, SendOptions options) override {
    if (lives().empty()) options.place(EnvelopePacker().content(answer_));
    const bool answers = lives().empty();
    auto id = SilentGrid::send(node, content, std::move(options));
    if (answers) arrival_ = Arrival{.node = node, .message_id = id};
    return id;
  }
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point /*deadline*/) override {
    return std::exchange(arrival_, std::nullopt);
  }

 private:
  Envelope answer_;
  std::optional<Arrival> arrival_{};
};

/// A client whose node gave no scores of its test rows when it joined, and says other things when it comes back.
class ComesBack : public ::testing::Test {
 protected:
  ComesBack() {
    roster_.add({.client = 0,
                 .key = "SHA256:site",
                 .name = "site",
                 .budget = 0.5,
                 .examples = 9,
                 .program = "1",
                 .no_scores = "it has few"});
  }

  /// Returns why the client is lost; empty if it is not.
  std::string lost_with(const std::function<void(Acceptance&)>& change) {
    Acceptance acceptance{.client = 0, .budget = 0.5, .examples = 9, .program = "1"};
    change(acceptance);
    AnsweringGrid grid({.run = roster_.run(), .kind = kAcceptanceEnvelope, .header = record::write(acceptance).dump()});
    Fleet fleet{.grid = grid, .roster = roster_, .folder = folder_.path()};
    fleet.joining.offer = [](int64_t client) {
      return Offer{.run = {}, .client = client, .config = {}, .base = {}, .sites = {}};
    };
    std::string lost;
    const fed::Exchange exchange{
        .task_of = [](const methods::ClientProfile& client) { return fed::Task{.client = client}; },
        .on_reply = [](const fed::Reply&) {},
        .on_lost = [&](int64_t, const std::string& why) { lost = why; }};
    Sessions sessions(fleet, exchange);
    sessions.begin({.id = 0});
    sessions.run([&] { return grid.lives().size() > 1; });
    return lost;
  }
  const Member& member() const { return roster_.members().at(0); }

  testing::TemporaryFolder folder_;
  Roster roster_{folder_.path() / "members.json"};
};

TEST_F(ComesBack, AndGivesScoresOfItsRows) {
  EXPECT_EQ(lost_with([](Acceptance& acceptance) { acceptance.test_rows = 14; }), "");
  EXPECT_EQ(member().test_rows, 14);
  EXPECT_EQ(member().no_scores, "");
}

TEST_F(ComesBack, WithANumberOfTestRowsThatNobodyMayJoinWithAndIsLost) {
  for (const int64_t rows : {int64_t{-1}, (int64_t{1} << 24) + 1, int64_t{1} << 62}) {
    const auto lost = lost_with([rows](Acceptance& acceptance) { acceptance.test_rows = rows; });
    EXPECT_NE(lost.find(concat(rows)), std::string::npos) << lost;
    EXPECT_NE(lost.find("allowed: 0 "), std::string::npos) << lost;
    EXPECT_EQ(member().test_rows, 0);
    EXPECT_EQ(member().no_scores, "it has few");
  }
}

TEST_F(ComesBack, WithAProgramThatNobodyMayJoinWithAndIsLost) {
  const auto lost = lost_with([](Acceptance& acceptance) { acceptance.program = std::string(65, '1'); });
  EXPECT_NE(lost.find("allowed: up to 64 bytes"), std::string::npos) << lost;
  EXPECT_EQ(member().program, "1");
}

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

/// Whether a node keeps the state after a training depends on what it is told of it.
TEST(Sessions, ALostScoreDoesNotHideWhatBecameOfATraining) {
  const testing::TemporaryFolder folder;
  Roster roster(folder.path() / "members.json");
  roster.add({.client = 0, .key = "SHA256:site", .name = "site", .program = {}});
  const fed::Exchange exchange{
      .task_of = [](const methods::ClientProfile& client) { return fed::Task{.client = client, .ask = fed::Score{}}; },
      .on_reply = [](const fed::Reply&) {},
      .on_lost = [](int64_t, const std::string&) {}};
  const auto lost_score_after = [&](fed::AuditWork work) {
    SilentGrid grid;
    Fleet fleet{.grid = grid, .roster = roster, .folder = folder.path(), .terms = {.deadline_s = 1e-3, .quorum = 0}};
    fleet.agreed.insert(0);
    fleet.untold[0] = {3, work, false, "late"};
    Sessions sessions(fleet, exchange, true);
    sessions.begin({.id = 0, .trains = false});
    sessions.run();
    return fleet.untold.at(0).reason;
  };
  EXPECT_EQ(lost_score_after(fed::AuditWork::kTrain), "late");
  EXPECT_NE(lost_score_after(fed::AuditWork::kScore), "late");
}

}  // namespace
}  // namespace evenkeel::flower
