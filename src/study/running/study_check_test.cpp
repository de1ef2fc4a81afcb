#include "study/running/study_check.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace evenkeel::study {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(StudyCheck, RunsAtOnceAreNamedBesideTheFlag) {
  const auto said = [](int64_t each, int64_t available, int64_t at_once, int64_t jobs) {
    return testing::refusal([&] { check_runs_fit(each * kGiB, available * kGiB, at_once, jobs); });
  };
  EXPECT_EQ(said(3, 6, 2, 2), "no error");
  EXPECT_EQ(said(100, 6, 1, 4), "no error") << "a run alone is checked by itself, also where one GPU is for four jobs";
  const auto on_gpus = said(4, 6, 2, 4);
  EXPECT_NE(on_gpus.find("--jobs 4: 2 runs at once, each needs 4.0 GiB, available are 6.0 GiB, allowed: up to 1"),
            std::string::npos)
      << on_gpus;
  const auto on_processors = said(2, 7, 4, 4);
  EXPECT_NE(on_processors.find("--jobs 4: 4 runs at once"), std::string::npos) << on_processors;
  EXPECT_NE(on_processors.find("allowed: up to 3"), std::string::npos) << on_processors;
  EXPECT_NE(said(INT64_MAX / kGiB, 6, 1024, 1024), "no error") << "the product does not overflow";
}

}  // namespace
}  // namespace evenkeel::study
