#include "flower/federation/node_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::flower {
namespace {

TensorMap three_times(double value) { return {{"rescaler", at::full({3}, value)}}; }

TEST(NodeMemory, IsStoredAfterDelivery) {
  const testing::TemporaryFolder folder;
  NodeMemory memory(folder.path(), "run");
  memory.propose(0, three_times(1));
  EXPECT_TRUE(memory.before(1).empty());
  memory.delivered();
  for (int64_t round = 1; round < 4; ++round) {
    memory.propose(round, three_times(static_cast<double>(round + 1)));
    memory.delivered();
  }
  const NodeMemory again(folder.path(), "run");
  EXPECT_TRUE(at::equal(again.before(4).at("rescaler"), at::full({3}, 4.0)));
  EXPECT_TRUE(at::equal(again.before(3).at("rescaler"), at::full({3}, 3.0))) << "a round that is asked for again";
  EXPECT_TRUE(again.before(2).empty()) << "the last two are kept";
  EXPECT_TRUE(NodeMemory(folder.path(), "another").before(4).empty());
}

TEST(NodeMemory, TrainingAnEarlierRoundAgainDropsLaterMemory) {
  const testing::TemporaryFolder folder;
  NodeMemory memory(folder.path(), "run");
  const auto train = [&](int64_t round, double value) {
    memory.propose(round, three_times(value));
    memory.delivered();
  };
  for (int64_t round = 0; round < 4; ++round) train(round, static_cast<double>(round));
  EXPECT_TRUE(memory.before(0).empty());
  train(0, 10);
  const NodeMemory again(folder.path(), "run");
  for (const auto* one : {&std::as_const(memory), &again}) {
    EXPECT_TRUE(at::equal(one->before(1).at("rescaler"), at::full({3}, 10.0)));
    EXPECT_TRUE(at::equal(one->before(4).at("rescaler"), at::full({3}, 10.0))) << "rounds that are undone";
  }
}

TEST(NodeMemory, ARoundThatLeavesNoMemoryDropsThatOfUndoneRounds) {
  const testing::TemporaryFolder folder;
  for (const auto& place : {folder.path(), fs::path()}) {
    NodeMemory memory(place, "run");
    const auto train = [&](int64_t round, TensorMap state) {
      memory.propose(round, std::move(state));
      memory.delivered();
    };
    train(2, three_times(3));
    train(4, three_times(5));
    train(3, {});  // the server resumed after round 3
    EXPECT_TRUE(at::equal(memory.before(3).at("rescaler"), at::full({3}, 3.0))) << place;
    EXPECT_TRUE(memory.before(9).empty()) << place;
    train(2, {});  // and now after round 2, whose own state is undone too
    EXPECT_TRUE(memory.before(9).empty()) << place;
    train(5, {});
    EXPECT_TRUE(memory.before(9).empty()) << "nothing is known";
  }
  EXPECT_TRUE(NodeMemory(folder.path(), "run").before(9).empty());
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(NodeMemory, AStateThatARoundClearedStaysClear) {
  const testing::TemporaryFolder folder;
  NodeMemory memory(folder.path(), "run");
  const auto train = [&](int64_t round, TensorMap state) {
    memory.propose(round, std::move(state));
    memory.delivered();
  };
  train(0, three_times(1));
  train(1, {});
  train(2, {});
  const NodeMemory again(folder.path(), "run");
  for (const auto* one : {&std::as_const(memory), &again}) {
    EXPECT_TRUE(one->before(3).empty());
    EXPECT_TRUE(at::equal(one->before(1).at("rescaler"), at::full({3}, 1.0))) << "a round that is asked for again";
  }
  train(3, three_times(4));
  EXPECT_TRUE(at::equal(NodeMemory(folder.path(), "run").before(4).at("rescaler"), at::full({3}, 4.0)));
}

/// A node is killed after it has sent the reply of round 1, and before it hears whether that arrived.
class NodeMemoryAfterAKill : public ::testing::Test {
 protected:
  NodeMemoryAfterAKill() {
    NodeMemory memory(place(), "run");
    memory.propose(0, three_times(1));
    memory.delivered();
    memory.propose(1, three_times(2));
  }
  fs::path place() const { return folder_.path(); }
  /// The state of a node that is started again, and the same of one that starts once more.
  void expect(int64_t round, double value, const std::function<void(NodeMemory&)>& settle) const {
    NodeMemory again(place(), "run");
    settle(again);
    for (const auto& one : {again, NodeMemory(place(), "run")})
      EXPECT_TRUE(at::equal(one.before(round).at("rescaler"), at::full({3}, value)));
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(NodeMemoryAfterAKill, TheStateIsNotUsedBeforeItIsSettled) {
  expect(2, 1, [](NodeMemory& memory) { memory.asked(1); });
  expect(2, 1, [](NodeMemory& memory) { memory.decided(0, true); });
}

TEST_F(NodeMemoryAfterAKill, AReplyThatTheServerHasTakenMakesItValid) {
  expect(2, 2, [](NodeMemory& memory) { memory.decided(1, true); });
}

TEST_F(NodeMemoryAfterAKill, AReplyThatTheServerRefusesDropsIt) {
  expect(2, 1, [](NodeMemory& memory) { memory.refused(); });
  expect(2, 1, [](NodeMemory& memory) { memory.asked(2); });
}

TEST_F(NodeMemoryAfterAKill, AReplyThatTheServerHasNotTakenDropsIt) {
  expect(2, 1, [](NodeMemory& memory) { memory.decided(1, false); });
  expect(2, 1, [](NodeMemory& memory) { memory.asked(2); });
}

TEST_F(NodeMemoryAfterAKill, ATaskOfALaterRoundMakesItValid) {
  expect(2, 2, [](NodeMemory& memory) { memory.asked(2); });
}

TEST_F(NodeMemoryAfterAKill, ATaskOfTheSameRoundReplacesIt) {
  expect(2, 3, [](NodeMemory& memory) {
    memory.asked(1);
    EXPECT_TRUE(at::equal(memory.before(1).at("rescaler"), at::full({3}, 1.0)));
    memory.propose(1, three_times(3));
    memory.delivered();
  });
}

/// Limits the length of files for as long as it exists, as a disk that is full does.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

/// The server has resumed after round 1, and the node stops while it stores that round again: before the tensors are
/// written, or between them and their seal, which is longer.
TEST(NodeMemory, ANodeThatStopsWhileItReplacesARoundStartsAgain) {
  for (const rlim_t most : {8, 130}) {
    const testing::TemporaryFolder folder;
    const auto small = [](int64_t value) { return TensorMap{{"x", at::full({1}, value, at::kByte)}}; };
    {
      NodeMemory memory(folder.path(), "run");
      for (int64_t round = 0; round < 3; ++round) {
        memory.propose(round, small(round + 1));
        memory.delivered();
      }
      memory.propose(1, small(20));
      const FullDisk full(most);
      EXPECT_THROW(memory.delivered(), Error);
    }
    EXPECT_EQ(path_exists(folder.path() / "run-2.safetensors"), most > 8) << "where the node stopped";
    EXPECT_TRUE(NodeMemory(folder.path(), "run").before(9).empty()) << "states that are undone";
    NodeMemory again(folder.path(), "run");
    again.propose(1, small(20));
    again.delivered();
    EXPECT_EQ(NodeMemory(folder.path(), "run").before(9).at("x").item<int64_t>(), 20);
  }
}

TEST(NodeMemory, AFileOfARunWithALongerNameIsNotRead) {
  const testing::TemporaryFolder folder;
  for (const auto* run : {"run-a", "run"}) {
    NodeMemory memory(folder.path(), run);
    memory.propose(0, three_times(run == std::string("run") ? 1 : 2));
    memory.delivered();
  }
  EXPECT_TRUE(at::equal(NodeMemory(folder.path(), "run").before(1).at("rescaler"), at::full({3}, 1.0)));
  EXPECT_TRUE(at::equal(NodeMemory(folder.path(), "run-a").before(1).at("rescaler"), at::full({3}, 2.0)));
}

TEST(NodeMemory, AFlippedBitIsFound) {
  const testing::TemporaryFolder folder;
  NodeMemory memory(folder.path(), "run");
  memory.propose(0, three_times(1));
  memory.delivered();
  for (const auto* name : {"run-1.safetensors", "run-1.json"}) {
    const auto file = folder.path() / name;
    const auto whole = read_file(file);
    auto changed = whole;
    changed[changed.size() - 3] ^= 1;
    write_file_atomic(file, changed);
    const auto said = testing::refusal([&] { NodeMemory(folder.path(), "run"); });
    EXPECT_NE(said.find(concat("remove ", (folder.path() / "run-1.json").string())), std::string::npos) << said;
    write_file_atomic(file, whole);
  }
}

}  // namespace
}  // namespace evenkeel::flower
