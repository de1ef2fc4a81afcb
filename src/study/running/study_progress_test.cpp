#include "study/running/study_progress.h"

#include <gtest/gtest.h>

#include <array>

#include "base/testing.h"

namespace evenkeel::study {
namespace {

/// Two runs of four rounds each.
Study study_of_two(const fs::path& folder) {
  Study study{.folder = folder, .state = {}, .arms = {}, .runs = {}};
  for (const auto* arm : {"a", "b"}) {
    study.state.runs.push_back({.arm = arm, .seed = 1, .folder = run_folder_name(arm, 1), .config_sha256 = ""});
    const auto config = fed::settle({}, {}).with([](fed::ExperimentConfig& values) { values.train.rounds = 4; });
    study.runs.push_back({.arm = arm, .seed = 1, .config = config});
  }
  return study;
}

/// Arms differ in speed, and later rounds from the first, so the time of rounds is no limit of the time left.
TEST(StudyProgress, TheTimeLeftIsAnEstimateBeforeAndAfterTheFirstRunHasEnded) {
  const testing::TemporaryFolder folder;
  const std::array<size_t, 2> mine{0, 1};
  StudyProgress progress(study_of_two(folder.path()), mine, 1);
  progress.begin(0);
  EXPECT_FALSE(progress.seconds_left());
  EXPECT_EQ(progress.text(), "a:1 round 0/4; 0 of 2 runs done");
  make_folders(folder.path() / "a/seed-1");
  write_file_atomic(folder.path() / "a/seed-1/rounds.jsonl", "{}\n");
  EXPECT_TRUE(progress.poll());
  EXPECT_TRUE(progress.seconds_left());
  EXPECT_TRUE(progress.text().starts_with("a:1 round 1/4; 0 of 2 runs done, about ")) << progress.text();
  progress.end(0, 7.0);
  EXPECT_DOUBLE_EQ(progress.seconds_left().value(), 7.0);
  EXPECT_TRUE(progress.text().starts_with("1 of 2 runs done, about 7")) << progress.text();
}

}  // namespace
}  // namespace evenkeel::study
