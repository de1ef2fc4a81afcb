#include "fed/run/run_folder.h"

#include <gtest/gtest.h>

#include "fed/run/new_run_folder.h"
#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

class RunFolderTest : public testing::SmallRun {};

/// Rounds take turns: adapter/ of one is written in the background, that of the next, which changes the base, at once.
TEST_F(RunFolderTest, TheAdapterOfTheLastRoundIsNotReplacedByThatOfAnEarlierOne) {
  auto e = experiment("fedit");
  const auto folder = root() / "run";
  const auto asked = ExperimentConfig::read(config::Table::parse(testing::kSmallRun, "unit.toml"));
  const auto run = RunFolder::create(folder, prepare_folder(folder), e.server, &e.fabric.shards, {}, asked);
  Snapshot small = beginning(e), large = beginning(e);
  large.state.common.base_change = large.state.global.adapters;
  for (auto& [site, factors] : large.state.common.base_change) factors.b = at::ones_like(factors.b);
  run.save_adapter(large.state, e.server, "expected");
  const auto expected = read_file(folder / "expected" / "adapter_model.safetensors");
  for (int64_t round = 1; round <= 8; ++round) {
    Snapshot& now = round % 2 == 1 ? small : large;
    now.state.round = round;
    RoundRecord record;
    record.round = round;
    record.method = "fedit";
    run.commit(now, record, e.server);
  }
  run.finish(8);
  EXPECT_TRUE(read_file(folder / "adapter" / "adapter_model.safetensors") == expected);
}

}  // namespace
}  // namespace evenkeel::fed
