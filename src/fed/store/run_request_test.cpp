#include "fed/store/run_request.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/testing.h"
#include "fed/config/config_paths.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kText =
    "seed = 7\nmodel = {compute_dtype = 'float32'}\nthreads = 3\n[method]\nname = 'fedit'\n";

class Request : public ::testing::Test {
 protected:
  RunConfig settled(std::vector<std::string> settings) const {
    return settle(RunRequest{.file = file_.path(), .settings = std::move(settings)}.config(), {});
  }

  const testing::TemporaryFile file_{kText, "run.toml"};
};

TEST_F(Request, SettingsOverrideThoseOfTheEarlierRequest) {
  const RunRequest request{.file = file_.path(), .settings = {"seed=9"}, .out = "there"};
  const std::vector<std::string> before = {"seed=8", "train.rounds=2"};
  const auto config = request.config(before);
  EXPECT_EQ(config.seed, 9);
  EXPECT_EQ(config.train.rounds, 2);
  EXPECT_EQ(config.folder(), "there");
}

TEST_F(Request, DifferencesHaveKeyAndBothValues) {
  const auto run = settled({});
  EXPECT_TRUE(difference_lines(settled({"output.dir='elsewhere'"}), run).empty());
  EXPECT_EQ(difference_lines(settled({"train.optimizer.lr=1e-3", "seed=8"}), run),
            (std::vector<std::string>{"seed is 8, in the run 7", "train.optimizer.lr is 0.001, in the run 2e-04"}));
  const auto other = join(difference_lines(settled({"method.name='flora'"}), run), "; ");
  EXPECT_NE(other.find("method.name is \"flora\", in the run \"fedit\""), std::string::npos) << other;
  EXPECT_NE(other.find("method.flora.fresh_init is \"own\", in the run not there"), std::string::npos) << other;
  const auto back = join(difference_lines(run, settled({"method.name='flora'"})), "; ");
  EXPECT_NE(back.find("method.flora.fresh_init is not there, in the run \"own\""), std::string::npos) << back;
}

TEST_F(Request, WhatIsAskedAsAtTheBeginningChangesNothingWhateverItStandsForNow) {
  const std::vector<std::string> settings = {
      "threads=0",       "model.compute_dtype='auto'",           "model.path='nowhere'",
      "data.task=files", "data.files.train=['nowhere/*.jsonl']", "data.path='$EVENKEEL_DATA/commonsense'"};
  const auto then = RunRequest{.file = file_.path(), .settings = settings}.config();
  auto run = settled({"data.task=files", "data.files.train=['/disk/rows/a.jsonl']", "data.path='/disk/commonsense'",
                      "model.path='hf://acme/tiny@0123'"});
  EXPECT_TRUE(changes_of(then, then, run).empty());
  auto more = settings;
  more.insert(more.end(), {"train={rounds=7}", "seed=7"});
  run = run.with([&](ExperimentConfig& values) { values.data.files.train = {file_.path().string()}; });
  const auto now = RunRequest{.file = file_.path(), .settings = more}.config();
  EXPECT_EQ(lines_of(changes_of(now, then, run)), std::vector<std::string>{"train.rounds is 7, in the run 10"});
}

TEST_F(Request, OtherPathsOfTheFilesOfTheRunAreNoChange) {
  const testing::TemporaryFolder folder;
  make_folders(folder.path() / "a");
  for (const auto* name : {"a/1.jsonl", "a/2.jsonl", "b.jsonl", "c.jsonl"})
    write_file_atomic(folder.path() / name, "{}");
  fs::create_directory_symlink(folder.path() / "a", folder.path() / "link");
  const auto asked = [&](const std::string& patterns) {
    std::string train = patterns;
    for (size_t at = 0; (at = train.find('@')) != train.npos;) train.replace(at, 1, folder.path().string());
    return RunRequest{.file = file_.path(), .settings = {"data.task=files", "data.files.x.train=" + train}}.config();
  };
  const auto then = asked("['@/a/*.jsonl']");
  const auto run = settle(with_inputs(then), {});
  ASSERT_EQ(run->data.files.sets.at("x").train.size(), 2u);
  write_file_atomic(folder.path() / "a/3.jsonl", "{}");  // does not join the run
  const auto changes = [&](const std::string& patterns) { return changes_of(asked(patterns), then, run).size(); };
  EXPECT_EQ(changes("['@/a/*.jsonl']"), 0u);
  EXPECT_EQ(changes("['@/a/1.jsonl', '@/./a/2.jsonl']"), 0u);
  EXPECT_EQ(changes("['@/link/1.jsonl', '@/a/../a/2.jsonl']"), 0u);
  EXPECT_EQ(changes("['@/a/1.jsonl']"), 1u);
  EXPECT_EQ(changes("['@/a/[12].jsonl', '@/c.jsonl']"), 1u);
  EXPECT_EQ(changes("['@/*.jsonl']"), 1u);
  EXPECT_THROW(changes("['@/gone.jsonl']"), Error);
}

TEST_F(Request, AKeyIsGivenInWhateverFormItIsWritten) {
  for (const auto* setting : {"train.rounds=3", "train . rounds = 3", "train={rounds=3}", "train={ 'rounds' = 3 }"})
    EXPECT_EQ((RunRequest{.file = file_.path(), .settings = {setting}}.rounds({})), 3) << setting;
  EXPECT_FALSE((RunRequest{.file = file_.path(), .settings = {"train={batch_size=3}"}}.rounds({})));
  EXPECT_TRUE(
      (RunRequest{.file = {}, .settings = {"model={products={expert_forward=['own']}}"}}.says("model.products")));
}

}  // namespace
}  // namespace evenkeel::fed
