#include "study/definition/job_slots.h"

#include <gtest/gtest.h>

#include <map>

namespace evenkeel::study {
namespace {

using Environment = std::vector<std::string>;

TEST(JobSlots, RunsOnProcessorsAreAsManyAsAskedFor) {
  JobSlots slots("cpu", 3, 8);
  EXPECT_EQ(slots.count(), 3);
  EXPECT_EQ(slots.environment(2), Environment());
  EXPECT_EQ(slots.notice(), "");
}

TEST(JobSlots, RunsOnGpusAreAtMostOnePerGpu) {
  struct Case {
    const char* device;
    int64_t jobs, gpus, count;
    const char* notice;
  };
  for (const auto& [device, jobs, gpus, count, notice] :
       {Case{"cuda", 4, 2, 2, "--jobs 4: runs take turns on each of cuda:0 to cuda:1, 2 at a time"},
        Case{"cuda", 4, 1, 1, "--jobs 4: runs take turns on the GPU, 1 at a time"},
        Case{"cuda", 3, 8, 3, "--jobs 3: runs take turns on each of cuda:0 to cuda:2, 3 at a time"},
        Case{"cuda:5", 2, 8, 1, "--jobs 2: runs take turns on cuda:5, 1 at a time"}, Case{"cuda", 1, 8, 1, ""},
        Case{"cuda", 2, 0, 1, "--jobs 2: runs take turns on the GPU, 1 at a time"}}) {
    const JobSlots slots(device, jobs, gpus);
    EXPECT_EQ(slots.count(), count) << device << ' ' << jobs << ' ' << gpus;
    EXPECT_EQ(slots.notice(), notice);
  }
}

TEST(JobSlots, EachRunHasAGpuOfItsOwnUntilItEnds) {
  JobSlots slots("cuda", 3, 3);
  std::map<std::string, size_t> at_work{{"a", *slots.take()}, {"b", *slots.take()}, {"c", *slots.take()}};
  EXPECT_EQ(slots.environment(at_work["a"]), Environment{"LOCAL_RANK=0"});
  EXPECT_EQ(slots.environment(at_work["b"]), Environment{"LOCAL_RANK=1"});
  EXPECT_EQ(slots.environment(at_work["c"]), Environment{"LOCAL_RANK=2"});
  EXPECT_FALSE(slots.take()) << "the fourth run waits";
  slots.give_back(at_work["b"]);
  EXPECT_EQ(slots.take(), 1u) << "and takes the GPU of the run that ended first";
  slots.give_back(at_work["c"]);
  slots.give_back(at_work["a"]);
  EXPECT_EQ(slots.take(), 0u);
}

TEST(JobSlots, ASingleRunKeepsTheGpuThatALauncherChose) {
  EXPECT_EQ(JobSlots("cuda", 1, 8).environment(0), Environment());
  EXPECT_EQ(JobSlots("cuda:3", 4, 8).environment(0), Environment());
}

}  // namespace
}  // namespace evenkeel::study
