#include "fed/store/run_request.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kText =
    "seed = 7\nmodel = {compute_dtype = 'float32'}\nthreads = 3\n[method]\nname = 'fedit'\n";

class Request : public ::testing::Test {
 protected:
  ExperimentConfig resolved(std::vector<std::string> settings) const {
    auto config = RunRequest{.file = file_.path(), .settings = std::move(settings)}.config();
    config.settle({});
    return config;
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
  const auto run = resolved({});
  EXPECT_TRUE(difference_lines(resolved({"output.dir='elsewhere'"}), run).empty());
  EXPECT_EQ(difference_lines(resolved({"train.optimizer.lr=1e-3", "seed=8"}), run),
            (std::vector<std::string>{"seed is 8, in the run 7", "train.optimizer.lr is 0.001, in the run 2e-04"}));
  const auto other = join(difference_lines(resolved({"method.name='flora'"}), run), "; ");
  EXPECT_NE(other.find("method.name is \"flora\", in the run \"fedit\""), std::string::npos) << other;
  EXPECT_NE(other.find("method.flora.fresh_init is \"own\", in the run not there"), std::string::npos) << other;
  const auto back = join(difference_lines(run, resolved({"method.name='flora'"})), "; ");
  EXPECT_NE(back.find("method.flora.fresh_init is not there, in the run \"own\""), std::string::npos) << back;
}

TEST_F(Request, AutoValuesAreThoseOfTheRun) {
  auto run = resolved({});
  run.data.path = "/disk/commonsense";
  const auto asked =
      RunRequest{.file = file_.path(),
                 .settings = {"threads=0", "model.compute_dtype='auto'", "data.path='$EVENKEEL_DATA/commonsense'"}}
          .config();
  EXPECT_TRUE(difference_lines(resolved_like(asked, run), run).empty());
  run.data.path = "";
  ::setenv("EVENKEEL_DATA", "/disk", 1);
  EXPECT_EQ(difference_lines(resolved_like(asked, run), run),
            (std::vector<std::string>{"data.path is \"/disk/commonsense\", in the run \"\""}));
  ::unsetenv("EVENKEEL_DATA");
}

TEST_F(Request, PatternsThatMatchTheFilesOfTheRunAreNoDifference) {
  const std::string task = "data.task=files";
  auto run = resolved({task, "data.files.x.test=[b.jsonl]", "data.files.x.train=[a/1.jsonl, a/2.jsonl]"});
  const auto differences_of = [&](const std::string& patterns) {
    const RunRequest request{.file = file_.path(),
                             .settings = {task, "data.files.x.test=[b.jsonl]", "data.files.x.train=" + patterns}};
    return difference_lines(resolved_like(request.config(), run), run).size();
  };
  EXPECT_EQ(differences_of("['a/*.jsonl']"), 0u);
  EXPECT_EQ(differences_of("['a/1.jsonl', 'a/[23].jsonl']"), 0u);
  EXPECT_EQ(differences_of("['a/1.jsonl']"), 1u);
  EXPECT_EQ(differences_of("['a/*.jsonl', 'c.jsonl']"), 1u);
  EXPECT_EQ(differences_of("['*.jsonl']"), 1u);
}

}  // namespace
}  // namespace evenkeel::fed
