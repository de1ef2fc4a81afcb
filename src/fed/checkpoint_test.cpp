#include "fed/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "base/files.h"
#include "base/testing.h"
#include "fed/journal.h"
#include "fed/run_folder.h"

namespace evenkeel {
namespace {

class Folder : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const fs::path path_ = temporary_.path();
};
using CheckpointFolder = Folder;
using JournalFolder = Folder;
using PreparedFolder = Folder;

LoraFactors factors(int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return {at::randn({5, 3, 7}), at::randn({5, 11, 3}), at::Tensor{}, 0.3};
}

Snapshot snapshot(int64_t round) {
  Snapshot s;
  s.state.round = round;
  s.state.global.adapters["model.layers.0.mlp.experts.up_proj"] = factors(round);
  s.state.global.adapters["model.layers.0.self_attn.q_proj"] = {at::randn({3, 7}), at::randn({11, 3}),
                                                                at::randn({3, 3}), 1.0 / 3};
  s.state.global.extras["model.layers.0.mlp.phi"] = at::randn({5});
  s.state.memory["model.layers.0.mlp.utilization"] = at::randn({5}, at::kDouble);
  s.state.memory["a/b"] = at::arange(4);
  s.memories[7]["norm"] = at::randn({2, 3});
  return s;
}

void expect_same(const at::Tensor& x, const at::Tensor& y) {
  EXPECT_EQ(x.scalar_type(), y.scalar_type());
  EXPECT_TRUE(at::equal(x, y));
}

TEST_F(CheckpointFolder, ACommittedSnapshotComesBackToTheBit) {
  const Checkpoint checkpoint(path_);
  const auto before = snapshot(3);
  checkpoint.commit(before, {3, "{\"round\":3}", 17});
  const auto after = checkpoint.load(checkpoint.last()->round);
  EXPECT_EQ(after.state.round, 3);
  ASSERT_EQ(after.state.global.adapters.size(), 2u);
  for (const auto& [site, f] : before.state.global.adapters) {
    const auto& g = after.state.global.adapters.at(site);
    expect_same(f.a, g.a);
    expect_same(f.b, g.b);
    EXPECT_EQ(f.core.defined(), g.core.defined());
    EXPECT_EQ(f.scaling, g.scaling);
  }
  for (const auto& [name, tensor] : before.state.global.extras) expect_same(tensor, after.state.global.extras.at(name));
  for (const auto& [name, tensor] : before.state.memory) expect_same(tensor, after.state.memory.at(name));
  expect_same(before.memories.at(7).at("norm"), after.memories.at(7).at("norm"));
}

TEST_F(CheckpointFolder, ARoundThatWasNotCommittedLeavesTheOneBefore) {
  const Checkpoint checkpoint(path_);
  EXPECT_FALSE(checkpoint.last());
  checkpoint.commit(snapshot(1), {1, "one", 0});
  fs::create_directories(path_ / "round-2");
  write_file_atomic(path_ / "round-2" / "state.safetensors", "half a file");
  EXPECT_EQ(checkpoint.last()->round, 1);
  EXPECT_EQ(checkpoint.load(1).state.round, 1);
  checkpoint.commit(snapshot(2), {2, "two", 4});
  EXPECT_EQ(checkpoint.last()->record, "two");
  EXPECT_FALSE(fs::exists(path_ / "round-1"));
  EXPECT_EQ(checkpoint.load(2).state.round, 2);
}

TEST_F(CheckpointFolder, RepairLeavesTheLastCommitAndTheJournalOfTheNextRound) {
  const Checkpoint checkpoint(path_);
  checkpoint.repair();  // nothing there yet
  checkpoint.commit(snapshot(2), {2, "two", 0});
  for (const auto* name : {"round-1", "round-3", "uploads-2", "uploads-3"}) fs::create_directories(path_ / name);
  checkpoint.repair();
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(path_)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"commit.json", "round-2", "uploads-3"}));
}

TEST_F(CheckpointFolder, ADamagedMarkerIsAClearError) {
  write_file_atomic(path_ / "commit.json", "{\"round\":");
  EXPECT_THROW(Checkpoint(path_).last(), Error);
  write_file_atomic(path_ / "commit.json", "{}");
  EXPECT_THROW(Checkpoint(path_).last(), Error);
}

ClientRecord record(int64_t id) {
  ClientRecord r;
  r.id = id, r.steps = 4, r.tokens = 321, r.targets = 17;
  r.loss_sum = 1.0 / 3, r.first_loss = 2.1, r.last_loss = 0.1;
  r.counts["model.layers.0.mlp"] = {.router_logits = {}, .counts = at::tensor({1, 0, 3}, at::kLong), .tokens = 2};
  r.metrics["pg_share"] = 0.1 + 0.2;
  return r;
}

TEST_F(JournalFolder, AnUploadArrivesWithItsRecordAndMemory) {
  const RoundJournal journal(path_ / "uploads-1", TransportDtype::kFloat32);
  EXPECT_FALSE(journal.holds(5));
  Payload upload;
  upload.adapters["s"] = factors(1);
  journal.store(record(5), upload, {{"kept", at::ones({2})}});
  ASSERT_TRUE(journal.holds(5));
  const auto back = journal.record(5);
  EXPECT_EQ(back.loss_sum, 1.0 / 3);
  EXPECT_EQ(back.metrics.at("pg_share"), 0.1 + 0.2);
  EXPECT_EQ(back.counts.at("model.layers.0.mlp").tokens, 2);
  expect_same(back.counts.at("model.layers.0.mlp").counts, record(5).counts.at("model.layers.0.mlp").counts);
  EXPECT_EQ(back.bytes_up, static_cast<int64_t>(fs::file_size(path_ / "uploads-1" / "5.upload.safetensors")));
  const auto update = journal.update({.id = 5});
  EXPECT_EQ(update.steps, 4);
  expect_same(update.payload.adapters.at("s").a, upload.adapters.at("s").a);
  EXPECT_EQ(journal.memory(5).size(), 1u);
  EXPECT_TRUE(journal.memory(6).empty());
}

TEST_F(JournalFolder, AnUploadWithoutItsRecordNeverArrived) {
  const RoundJournal journal(path_, TransportDtype::kFloat32);
  write_file_atomic(path_ / "5.upload.safetensors", "half");
  EXPECT_FALSE(journal.holds(5));
}

TEST_F(PreparedFolder, ARunThatNeverBeganMayBeBegunAgain) {
  const auto folder = path_ / "run";
  EXPECT_TRUE(RunFolder::nothing_began(folder));
  RunFolder::prepare(folder);
  write_file_atomic(folder / "config.toml", "");
  EXPECT_TRUE(RunFolder::nothing_began(folder));
  EXPECT_NO_THROW(RunFolder::prepare(folder));
  EXPECT_FALSE(fs::exists(folder / "config.toml"));
}

TEST_F(PreparedFolder, ABeginningKilledWhileItsMarkerWasWrittenMayBeBegunAgain) {
  fs::create_directories(path_);
  write_file_atomic(path_ / ".unfinished.part-1-0", "");
  EXPECT_TRUE(RunFolder::nothing_began(path_));
  RunFolder::prepare(path_);
  EXPECT_FALSE(fs::exists(path_ / ".unfinished.part-1-0"));
}

TEST_F(PreparedFolder, AFolderOfSomebodyElseIsLeftAlone) {
  write_file_atomic(path_ / "config.toml", "mine");
  EXPECT_THROW(RunFolder::prepare(path_), Error);
  EXPECT_EQ(read_file(path_ / "config.toml"), "mine");
  EXPECT_FALSE(RunFolder::nothing_began(path_));
}

TEST_F(PreparedFolder, AFolderWithARunIsNotBegunAgain) {
  write_file_atomic(path_ / "manifest.json", "{}");
  EXPECT_THROW(RunFolder::prepare(path_), Error);
  EXPECT_FALSE(RunFolder::nothing_began(path_));
}

/// A run folder whose second round's line was lost, or half written, or has a line too many.
void expect_repaired(const fs::path& folder, std::string_view rounds) {
  fs::create_directories(folder / "checkpoint");
  write_file_atomic(folder / "manifest.json", "{}");
  Checkpoint(folder / "checkpoint").commit(snapshot(2), {2, "{\"round\":2}", 12});
  write_file_atomic(folder / "rounds.jsonl", rounds);
  write_file_atomic(folder / "evaluations.jsonl", "{\"round\":0}\n{\"rou");
  write_file_atomic(folder / "adapter.part-1-0", "");
  const auto run = RunFolder::open(folder);
  EXPECT_EQ(read_file(folder / "rounds.jsonl"), "{\"round\":1}\n{\"round\":2}\n");
  EXPECT_EQ(run.evaluations().size(), 1u);
  EXPECT_FALSE(fs::exists(folder / "adapter.part-1-0"));
}

TEST_F(PreparedFolder, RecordsAreBroughtBackToTheLastCommit) {
  expect_repaired(path_ / "lost", "{\"round\":1}\n");
  expect_repaired(path_ / "half", "{\"round\":1}\n{\"rou");
  expect_repaired(path_ / "whole", "{\"round\":1}\n{\"round\":2}\n");
  expect_repaired(path_ / "more", "{\"round\":1}\n{\"round\":2}\n{\"round\":3}\n");
}

}  // namespace
}  // namespace evenkeel
