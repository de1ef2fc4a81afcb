#include "fed/store/run_checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/plain/files.h"
#include "base/testing.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/run_folder.h"
#include "fed/run/stored_config.h"
#include "fed/store/journal.h"
#include "fed/store/manifest.h"

namespace evenkeel::fed {
namespace {

class Folder : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const fs::path path_ = temporary_.path();
};
using CheckpointFolder = Folder;
using JournalFolder = Folder;
using PreparedFolder = Folder;

lora::LoraFactors factors(int64_t seed) {
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

/// Returns the names in a folder.
std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void flip_bit(const fs::path& file, size_t bit) {
  auto text = read_file(file);
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  write_file_atomic(file, text);
}

std::string line_of(int64_t round) { return sealed({{"round", round}}); }

using testing::refusal;

#define EXPECT_REFUSAL(expression, words) \
  EXPECT_NE(refusal([&] { expression; }).find(words), std::string::npos) << refusal([&] { expression; })

TEST_F(CheckpointFolder, ACommittedSnapshotReadsBackIdentically) {
  const Checkpoint checkpoint(path_);
  const auto before = snapshot(3);
  checkpoint.begin();
  checkpoint.commit(before, line_of(3));
  const auto after = checkpoint.read().snapshot;
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

TEST_F(CheckpointFolder, TheLastTwoRoundsAreKept) {
  const Checkpoint checkpoint(path_);
  checkpoint.begin();
  EXPECT_EQ(checkpoint.read().commit.round, 0);
  for (int64_t round : {1, 2, 3}) checkpoint.commit(snapshot(round), line_of(round));
  for (int64_t round : {2, 3, 4, 5}) fs::create_directories(checkpoint.uploads(round));
  checkpoint.clear(3, 3);
  EXPECT_EQ(names_in(path_), (std::set<std::string>{"commit.json", "round-2", "round-3", "uploads-3", "uploads-4"}));
  checkpoint.clear(3, 4);
  EXPECT_EQ(names_in(path_), (std::set<std::string>{"commit.json", "round-2", "round-3", "uploads-4"}));
  EXPECT_EQ(checkpoint.read().commit.record, line_of(3));
  EXPECT_EQ(checkpoint.read(2).commit.record, line_of(2));
  EXPECT_REFUSAL(checkpoint.read(1), "--from-round is 1, allowed for " + path_.string() + ": 3, 2, 0");
}

TEST_F(CheckpointFolder, RemovingWhatIsOlderThanARoundKeepsAllLaterOnes) {
  const Checkpoint checkpoint(path_);
  checkpoint.begin();
  for (int64_t round : {1, 2, 3, 4, 5}) checkpoint.commit(snapshot(round), line_of(round));
  for (int64_t round : {2, 3, 4, 5, 6, 7}) fs::create_directories(checkpoint.uploads(round));
  checkpoint.remove_older(3);
  EXPECT_EQ(names_in(path_), (std::set<std::string>{"commit.json", "round-2", "round-3", "round-4", "round-5",
                                                    "uploads-3", "uploads-4", "uploads-5", "uploads-6", "uploads-7"}));
  EXPECT_EQ(checkpoint.read().commit.record, line_of(5));
}

TEST_F(CheckpointFolder, AnUncommittedRoundLeavesThePreviousOne) {
  const Checkpoint checkpoint(path_);
  checkpoint.begin();
  checkpoint.commit(snapshot(1), line_of(1));
  fs::create_directories(path_ / "round-2");
  write_file_atomic(path_ / "round-2" / "state.safetensors", "half a file");
  EXPECT_EQ(checkpoint.read().snapshot.state.round, 1);
  checkpoint.settle(checkpoint.last());
  EXPECT_EQ(names_in(path_), (std::set<std::string>{"commit.json", "round-1"}));
}

TEST_F(CheckpointFolder, SettlingKeepsTwoRoundsTheNextJournalAndUnknownFiles) {
  const Checkpoint checkpoint(path_);
  checkpoint.begin();
  for (int64_t round : {2, 3}) checkpoint.commit(snapshot(round), line_of(round));
  for (const auto* name : {"round-1", "round-4", "uploads-3", "uploads-4", "round-x", "my round-1"})
    fs::create_directories(path_ / name);
  for (const auto* name :
       {"commit.json.part-1-0", "commit.json.part-1", "notes.part-1-0", "round-3/state.safetensors.part-2-7"})
    write_file_atomic(path_ / name, "");
  checkpoint.settle(checkpoint.last());
  EXPECT_EQ(names_in(path_), (std::set<std::string>{"commit.json", "commit.json.part-1", "notes.part-1-0", "round-2",
                                                    "round-3", "uploads-4", "round-x", "my round-1"}));
  EXPECT_FALSE(fs::exists(path_ / "round-3/state.safetensors.part-2-7"));
}

TEST_F(CheckpointFolder, EveryFlippedBitOfTheMarkerIsReportedWithARemedy) {
  const Checkpoint checkpoint(path_);
  checkpoint.begin();
  for (int64_t round : {1, 2}) checkpoint.commit(snapshot(round), line_of(round));
  const auto bits = 8 * fs::file_size(path_ / "commit.json");
  for (size_t bit = 0; bit < bits; bit += 7) {
    flip_bit(path_ / "commit.json", bit);
    EXPECT_THROW(checkpoint.last(), Error) << bit;
    flip_bit(path_ / "commit.json", bit);
  }
  flip_bit(path_ / "commit.json", 99);
  EXPECT_REFUSAL(checkpoint.read(), "--resume --from-round 2");
  fs::remove(path_ / "commit.json");
  EXPECT_REFUSAL(checkpoint.read(), "commit.json is missing");
  checkpoint.settle(checkpoint.read(2).commit);
  EXPECT_EQ(checkpoint.read().commit.round, 2);
}

TEST_F(CheckpointFolder, EveryFlippedBitOfASnapshotIsReportedWithThePreviousRound) {
  const Checkpoint checkpoint(path_);
  checkpoint.begin();
  for (int64_t round : {1, 2}) checkpoint.commit(snapshot(round), line_of(round));
  for (const auto* name : {"state.safetensors", "memory.safetensors", "commit.json"}) {
    const auto file = path_ / "round-2" / name;
    const auto bits = 8 * fs::file_size(file);
    for (size_t bit = 3; bit < bits; bit += bits / 9) {
      flip_bit(file, bit);
      const auto text = testing::refusal([&] { checkpoint.read(); });
      EXPECT_NE(text.find(concat("round-2/", name, ": damaged")), std::string::npos) << text;
      EXPECT_NE(text.find("--from-round 1"), std::string::npos) << text;
      flip_bit(file, bit);
    }
  }
  EXPECT_EQ(checkpoint.read().commit.round, 2);
}

TEST_F(CheckpointFolder, AFileInItsPlaceIsReportedWithARemedy) {
  const auto file = path_ / "checkpoint";
  write_file_atomic(file, "no folder");
  const Checkpoint checkpoint(file);
  EXPECT_REFUSAL(checkpoint.read(),
                 concat("[checkpoint] ", file.string(), " is a file, expected a folder: move it away"));
  EXPECT_REFUSAL(checkpoint.read(), "nothing was changed; no round can be gone on from");
  EXPECT_REFUSAL(checkpoint.read(), "--resume --from-round 0");
  fs::remove(file);
  EXPECT_REFUSAL(checkpoint.read(), "commit.json is missing");
  checkpoint.settle({});
  EXPECT_EQ(checkpoint.read().commit.round, 0) << "as --from-round 0 does";
}

TEST_F(CheckpointFolder, ValuesOfTheWrongTypeNameTheFile) {
  write_sealed(path_ / "commit.json", {{"round", "two"}, {"record", ""}, {"files", OrderedJson::object()}});
  EXPECT_REFUSAL(Checkpoint(path_).last(), "[checkpoint] " + (path_ / "commit.json").string() + ": round is \"two\"");
  write_sealed(path_ / "commit.json", {{"round", 2}});
  EXPECT_REFUSAL(Checkpoint(path_).last(), "commit.json: record is missing");
}

ClientRecord record(int64_t id) {
  ClientRecord r;
  r.id = id, r.steps = 4, r.tokens = 321, r.targets = 17;
  r.loss_sum = 1.0 / 3, r.first_loss = 2.1, r.last_loss = 0.1;
  r.counts["model.layers.0.mlp"] = {.router_logits = {}, .counts = at::tensor({1, 0, 3}, at::kLong), .tokens = 2};
  r.metrics["pg_share"] = 0.1 + 0.2;
  return r;
}

TEST_F(JournalFolder, AnUploadIsStoredWithItsRecordAndMemory) {
  RoundJournal journal(path_ / "uploads-1");
  EXPECT_FALSE(journal.holds(5));
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  journal.store(record(5), lora::encode(upload, lora::TransportDtype::kFloat32, {}), {{"kept", at::ones({2})}});
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
  journal.store(record(6), lora::encode(upload, lora::TransportDtype::kFloat32, {}), {});
  EXPECT_TRUE(journal.memory(6).empty());
}

lora::LoraFactors stacked(int64_t experts, int64_t rank, int64_t in, int64_t out) {
  const auto numbers = [](at::IntArrayRef sizes) {
    return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes);
  };
  return {numbers({experts, rank, in}), numbers({experts, rank, out}).transpose(1, 2), {}, 2.0};
}

/// One upload in the background, one with several pieces, one whose experts differ in rank.
TEST_F(JournalFolder, TheStoredBytesAreThoseOfTheEncodedPayload) {
  lora::Payload small, large, unequal;
  small.adapters["s"] = factors(1);
  small.extras["s.counts"] = at::arange(5, at::kLong);
  large.adapters["s"] = stacked(5, 8, 300'001, 130'000);
  unequal.adapters["s"] = stacked(3, 4, 10, 6);
  unequal.adapters["s"].ranks = at::tensor({4, 0, 2}, at::kLong);
  for (const auto dtype : {lora::TransportDtype::kFloat32, lora::TransportDtype::kBFloat16})
    for (const auto* upload : {&small, &large, &unequal}) {
      const auto encoded = lora::encode(*upload, dtype, {});
      const std::string_view bytes{static_cast<const char*>(encoded.bytes.const_data_ptr()), encoded.bytes.nbytes()};
      RoundJournal journal(path_, 3600, {}, int64_t{1} << 30);
      journal.store(record(5), lora::DeferredPayload(*upload, dtype, {}), {});
      journal.flush();
      EXPECT_TRUE(read_file(journal.upload(5)) == bytes);
      const auto stored = journal.record(5);
      EXPECT_EQ(stored.up_parts, encoded.parts);
      EXPECT_EQ(stored.bytes_up, encoded.size());
      ASSERT_EQ(stored.files.size(), 1u);
      EXPECT_EQ(stored.files[0].fingerprint, fingerprint_of_bytes(bytes));
      EXPECT_EQ(stored.files[0].bytes, encoded.size());
    }
}

TEST_F(JournalFolder, UnflushedUploadsAreVisibleToOtherProcesses) {
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  RoundJournal journal(path_, 3600);
  for (int64_t id = 0; id < 300; ++id)
    journal.store(record(id), lora::DeferredPayload(upload, lora::TransportDtype::kFloat32, {}), {});
  const RoundJournal other(path_);
  for (int64_t id = 0; id < 298; ++id) EXPECT_TRUE(other.holds(id)) << id << ": the last two may be under way";
  EXPECT_TRUE(journal.holds(299));
  for (int64_t id = 298; id < 300; ++id) EXPECT_TRUE(other.holds(id)) << id;
  journal.flush();
  EXPECT_EQ(names_in(path_).size(), 600u) << "nothing is left of writing them";
  const AtomicFile dropped(path_ / "never");
  EXPECT_THROW(flush_files(std::vector{path_ / "gone"}), Error);
}

TEST_F(JournalFolder, AnErrorOfTheBackgroundThreadNamesTheClientWhoseUploadItWas) {
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  const lora::DeferredPayload deferred(upload, lora::TransportDtype::kFloat32, {});
  fs::create_directories(path_ / "5.upload.safetensors" / "full");  // no file can take its place
  RoundJournal journal(path_, 3600);
  journal.store(record(5), deferred, {}, "fifth");
  const auto said = testing::refusal([&] {
    journal.store(record(6), deferred, {}, "sixth");
    journal.flush();
  });
  EXPECT_TRUE(said.starts_with("[io] fifth: ")) << said;
  EXPECT_EQ(said.find("sixth"), std::string::npos) << said;
}

TEST_F(JournalFolder, EachArrivingUploadReplacesOneOfThePreviousRound) {
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  const auto encoded = lora::encode(upload, lora::TransportDtype::kFloat32, {});
  RoundJournal before(path_ / "1");
  for (int64_t id = 0; id < 3; ++id) before.store(record(id), encoded, {{"kept", at::ones({2})}});
  RoundJournal journal(path_ / "2", 0, path_ / "1");
  for (int64_t id = 5; id < 7; ++id) {
    const auto held = [&] { return before.holds(0) + before.holds(1) + before.holds(2); };
    const int still = held();
    journal.store(record(id), encoded, {});
    EXPECT_TRUE(journal.holds(id));
    EXPECT_EQ(held(), still - 1);
  }
  const auto left = names_in(path_ / "1");
  EXPECT_EQ(std::count_if(left.begin(), left.end(), [](const auto& name) { return name.find("memory") == name.npos; }),
            2)
      << "one upload and its record";
  RoundJournal(path_ / "3", 0, path_ / "never").store(record(8), encoded, {});
}

TEST_F(JournalFolder, AFailedBackgroundWriteIsReportedByTheNextCallOnly) {
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  RoundJournal journal(path_, 3600);
  fs::create_directories(path_ / "5.json" / "inside");
  journal.store(record(5), lora::encode(upload, lora::TransportDtype::kFloat32, {}), {});
  EXPECT_THROW(journal.flush(), Error);
  journal.store(record(6), lora::encode(upload, lora::TransportDtype::kFloat32, {}), {{"kept", at::ones({2})}});
  journal.flush();
  EXPECT_TRUE(journal.holds(6));
  EXPECT_EQ(journal.memory(6).size(), 1u);
}

TEST_F(JournalFolder, AnUploadThatCannotBeEncodedIsNotStored) {
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  lora::DeferredPayload broken(upload, lora::TransportDtype::kFloat32, {});
  broken.pass = [](const ByteSink&) -> std::map<std::string, int64_t> { fail(kData, "a factor that is none"); };
  RoundJournal journal(path_, 3600);
  journal.store(record(5), broken, {{"kept", at::ones({2})}});
  EXPECT_REFUSAL(journal.flush(), "a factor that is none");
  EXPECT_FALSE(journal.holds(5));
  EXPECT_TRUE(names_in(path_).empty()) << "neither memory nor record without an upload";
  journal.store(record(5), lora::DeferredPayload(upload, lora::TransportDtype::kFloat32, {}), {});
  journal.flush();
  EXPECT_TRUE(journal.holds(5));
}

TEST_F(JournalFolder, AnUploadWithoutItsRecordIsIgnored) {
  RoundJournal journal(path_);
  write_file_atomic(path_ / "5.upload.safetensors", "half");
  EXPECT_FALSE(journal.holds(5));
}

TEST_F(JournalFolder, ADamagedUploadIsIgnored) {
  RoundJournal journal(path_);
  lora::Payload upload;
  upload.adapters["s"] = factors(1);
  journal.store(record(5), lora::encode(upload, lora::TransportDtype::kFloat32, {}), {{"kept", at::ones({2})}});
  for (const auto* name : {"5.upload.safetensors", "5.memory.safetensors", "5.json"}) {
    const auto bits = 8 * fs::file_size(path_ / name);
    for (size_t bit = 5; bit < bits; bit += bits / 9) {
      flip_bit(path_ / name, bit);
      EXPECT_FALSE(journal.holds(5)) << name << bit;
      EXPECT_THROW((journal.update({.id = 5}), journal.memory(5)), Error) << name << bit;
      flip_bit(path_ / name, bit);
    }
  }
  EXPECT_TRUE(journal.holds(5));
}

TEST_F(PreparedFolder, AFolderWithoutACommittedRunCanBeUsedAgain) {
  const auto folder = path_ / "run";
  EXPECT_TRUE(nothing_began(folder));
  (void)prepare_folder(folder);
  write_file_atomic(folder / "config.toml", "");
  Checkpoint(folder / "checkpoint").begin();
  write_file_atomic(folder / "checkpoint/commit.json.part-1-0", "");
  EXPECT_TRUE(nothing_began(folder));
  const auto lock = prepare_folder(folder);
  EXPECT_EQ(names_in(folder), (std::set<std::string>{".lock", ".unfinished"}));
  EXPECT_REFUSAL(prepare_folder(folder), "in use by process");
}

TEST_F(PreparedFolder, AFolderWithAPartialMarkerCanBeUsedAgain) {
  write_file_atomic(path_ / ".unfinished.part-1-0", "");
  write_file_atomic(path_ / ".lock", "process 1 on a machine that was switched off\n");
  EXPECT_TRUE(nothing_began(path_));
  (void)prepare_folder(path_);
  EXPECT_FALSE(fs::exists(path_ / ".unfinished.part-1-0"));
}

TEST_F(PreparedFolder, AFolderWithRowsForTheRunCanBeUsedAndKeepsThem) {
  make_folders(path_ / "rows");
  write_file_atomic(path_ / "rows/train.jsonl", "{}\n");
  EXPECT_TRUE(nothing_began(path_));
  abandon_folder(path_, prepare_folder(path_));
  EXPECT_EQ(names_in(path_), std::set<std::string>{"rows"});
  EXPECT_EQ(read_file(path_ / "rows/train.jsonl"), "{}\n");
}

TEST_F(PreparedFolder, AFolderWithOtherFilesIsNotChanged) {
  write_file_atomic(path_ / "config.toml", "mine");
  EXPECT_THROW(prepare_folder(path_), Error);
  EXPECT_EQ(read_file(path_ / "config.toml"), "mine");
  EXPECT_FALSE(nothing_began(path_));
}

TEST_F(PreparedFolder, FilesWithSimilarNamesAreNotChanged) {
  write_file_atomic(path_ / ".unfinished", "");
  write_file_atomic(path_ / "my config.toml", "mine");
  EXPECT_REFUSAL(prepare_folder(path_), "not empty");
  EXPECT_EQ(read_file(path_ / "my config.toml"), "mine");
}

TEST_F(PreparedFolder, AFolderWithARunIsRefused) {
  write_file_atomic(path_ / "manifest.json", "{}");
  EXPECT_THROW(prepare_folder(path_), Error);
  EXPECT_FALSE(nothing_began(path_));
}

/// A run folder after two rounds.
class Records : public Folder {
 protected:
  Records() {
    const auto asked =
        ExperimentConfig::read(config::Table::parse("threads = 1\nmodel = {compute_dtype = 'float32'}", "x"));
    const auto config = settle(asked, {});
    write_file_atomic(path_ / "config.toml", config->text());
    write_manifest(path_, make_manifest(config, {}, asked, {}));
    const Checkpoint checkpoint(path_ / "checkpoint");
    checkpoint.begin();
    for (int64_t round : {1, 2}) {
      checkpoint.commit(snapshot(round), line_of(round));
      append_line(rounds_, line_of(round));
      append_sealed(evaluations_, record::write(EvaluationRecord{round, "fedit", {.task = "alpha"}}));
    }
  }
  void expect_settled() const {
    RunFolder::open(path_).settle();
    EXPECT_EQ(read_file(rounds_), line_of(1) + "\n" + line_of(2) + "\n");
    EXPECT_EQ(RunFolder::open(path_).evaluations().size(), 2u);
  }

  const fs::path rounds_ = path_ / "rounds.jsonl", evaluations_ = path_ / "evaluations.jsonl";
};

TEST_F(Records, AreTruncatedToTheLastCommit) {
  const auto one = line_of(1) + "\n", two = line_of(2) + "\n";
  for (const auto& rounds : {one, one + two.substr(0, 5), one + two}) {
    write_file_atomic(rounds_, rounds);
    expect_settled();
  }
  const auto scores = read_file(evaluations_);
  write_file_atomic(evaluations_, scores + "{\"rou");
  write_file_atomic(path_ / "report.html.part-1-0", "");
  write_file_atomic(path_ / "adapter.part-1-0.notes", "mine");
  expect_settled();
  EXPECT_EQ(read_file(evaluations_), scores);
  EXPECT_FALSE(fs::exists(path_ / "report.html.part-1-0"));
  EXPECT_TRUE(fs::exists(path_ / "adapter.part-1-0.notes"));
}

TEST_F(Records, MissingScoresAreReadableAfterAKilledAppend) {
  const auto file = path_ / "missing_scores.jsonl";
  const MissingScore missing{.round = 1, .task = "alpha", .reason = "no answer"};
  auto run = RunFolder::open(path_);
  run.settle();
  run.add_missing(missing);
  const auto whole = read_file(file);
  write_file_atomic(file, whole + whole.substr(0, whole.size() / 2));
  run.add_missing(missing);
  EXPECT_EQ(read_file(file), whole + whole);
  EXPECT_EQ(read_sealed_lines(file).whole().lines.size(), 2u);
}

TEST_F(Records, DamagedRecordsAreNotChanged) {
  const auto whole = read_file(rounds_);
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 5) {
    flip_bit(rounds_, bit);
    const auto damaged = read_file(rounds_);
    EXPECT_REFUSAL(RunFolder::open(path_), concat("rounds.jsonl, line ", bit < 4 * whole.size() ? 1 : 2, ": damaged"));
    EXPECT_EQ(read_file(rounds_), damaged);
    write_file_atomic(rounds_, whole);
  }
  flip_bit(evaluations_, 99);
  EXPECT_REFUSAL(RunFolder::open(path_), "evaluations.jsonl, line 1: damaged");
  EXPECT_REFUSAL(RunFolder::open(path_), "round 2 is whole, it is gone on from by: ");
}

TEST_F(Records, TheLastLineIsRestoredFromTheCommitOnRequest) {
  const auto whole = read_file(rounds_);
  flip_bit(rounds_, 8 * (whole.size() - 4));
  EXPECT_REFUSAL(RunFolder::open(path_), "rounds.jsonl, line 2: damaged");
  RunFolder::open(path_, 2).settle();
  EXPECT_EQ(read_file(rounds_), whole);
}

TEST_F(Records, MoreLinesThanRoundsAreNotDeleted) {
  append_line(rounds_, line_of(3));
  EXPECT_REFUSAL(RunFolder::open(path_), "rounds.jsonl: holds 3 whole lines, committed are 2 rounds");
  RunFolder::open(path_, 2).settle();
  EXPECT_EQ(read_file(rounds_), line_of(1) + "\n" + line_of(2) + "\n");
}

TEST_F(Records, MissingRecordsAreReported) {
  fs::remove(rounds_);
  EXPECT_REFUSAL(RunFolder::open(path_), "rounds.jsonl: holds 0 whole lines, committed are 2 rounds");
  EXPECT_REFUSAL(RunFolder::open(path_), "round 1 is whole, it is gone on from by: ");
  write_file_atomic(rounds_, line_of(2) + "\n");
  EXPECT_REFUSAL(RunFolder::open(path_), "rounds.jsonl, line 1: is of round 2, expected 1");
}

TEST_F(Records, ARunResumesFromThePreviousRound) {
  flip_bit(path_ / "checkpoint/round-2/state.safetensors", 77);
  flip_bit(rounds_, 8 * (read_file(rounds_).size() - 4));
  EXPECT_THROW(RunFolder::open(path_), Error);
  auto run = RunFolder::open(path_, 1);
  EXPECT_EQ(run.checkpoint().last().round, 2);  // nothing changes before settle()
  run.settle();
  EXPECT_EQ(run.checkpoint().last().round, 1);
  EXPECT_EQ(read_file(rounds_), line_of(1) + "\n");
  EXPECT_EQ(run.evaluations().size(), 1u);
  EXPECT_FALSE(fs::exists(path_ / "checkpoint/round-2"));
  EXPECT_EQ(run.take_snapshot()->state.round, 1);
}

TEST_F(Records, AnswersOfARoundThatIsMadeAgainAreDropped) {
  const auto answers = path_ / "evaluating.jsonl";
  write_file_atomic(answers, "{}\n");
  RunFolder::open(path_).settle();
  EXPECT_TRUE(fs::exists(answers));
  RunFolder::open(path_, 1).settle();
  EXPECT_FALSE(fs::exists(answers));
}

TEST_F(Records, ARunRestartsFromRoundZero) {
  auto run = RunFolder::open(path_, 0);
  run.settle();
  EXPECT_EQ(fs::file_size(rounds_) + fs::file_size(evaluations_), 0u);
  EXPECT_EQ(names_in(path_ / "checkpoint"), (std::set<std::string>{"commit.json"}));
  EXPECT_FALSE(run.take_snapshot());
}

TEST_F(Records, OneProcessLocksAFolderAndOthersCanRead) {
  const auto run = RunFolder::open(path_);
  EXPECT_REFUSAL(RunFolder::open(path_), concat("in use by process ", ::getpid()));
  EXPECT_EQ(run_config(path_)->seed, 42);
  EXPECT_EQ(Checkpoint(path_ / "checkpoint").read().commit.round, 2);
}

TEST_F(Records, AnEditedConfigIsReportedByItsKeys) {
  auto text = read_file(path_ / "config.toml");
  text.replace(text.find("seed = 42"), 9, "seed = 43");
  text.replace(text.find("rank = 20"), 9, "rank = 24");
  write_file_atomic(path_ / "config.toml", text);
  EXPECT_REFUSAL(run_config(path_), "lora.rank is 24, in the run 20; seed is 43, in the run 42");
  write_file_atomic(path_ / "config.toml", "");
  EXPECT_REFUSAL(run_config(path_), "config.toml is not as the run wrote it");
  write_file_atomic(path_ / "config.toml", text + "[train");
  EXPECT_REFUSAL(run_config(path_), "config.toml is not as the run wrote it");
}

TEST_F(Records, ARunWithoutChecksumsIsRefused) {
  write_file_atomic(path_ / "manifest.json", R"({"program": "evenkeel", "version": "0.1.0", "files": []})");
  EXPECT_REFUSAL(run_config(path_), "manifest.json: damaged");
  write_file_atomic(path_ / "manifest.json", R"({"format": 2, "version": "0.1.0", "files": []})");
  EXPECT_REFUSAL(run_config(path_), "manifest.json: damaged");
}

}  // namespace
}  // namespace evenkeel::fed
