#include "flower/federation/node_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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
    EXPECT_THROW(NodeMemory(folder.path(), "run"), Error) << name;
    write_file_atomic(file, whole);
  }
}

}  // namespace
}  // namespace evenkeel::flower
