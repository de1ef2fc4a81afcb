#include "nn/kernels/layers/expert_slots.h"

#include <gtest/gtest.h>

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kWork = 3 * 2048 * 1024;  // multiply-adds per row of an expert of OLMoE

// Builds slots with one expert per token. Expert e has rows[e] tokens.
ExpertSlots slots_of(const std::vector<int64_t>& rows) {
  std::vector<int64_t> experts;
  for (size_t e = 0; e < rows.size(); ++e)
    experts.insert(experts.end(), static_cast<size_t>(rows[e]), static_cast<int64_t>(e));
  return {experts, 1, static_cast<int64_t>(rows.size())};
}

TEST(ExpertSlots, ExpertsOfEqualLoadRunInParallel) {
  const auto slots = slots_of(std::vector<int64_t>(64, 32));
  for (const int64_t threads : {2, 4, 16}) EXPECT_EQ(slots.data_parallel_experts(threads, kWork), 0) << threads;
}

TEST(ExpertSlots, LargestExpertsAreDataParallel) {
  EXPECT_EQ(slots_of({4, 3, 400, 5, 6, 90, 2}).data_parallel_experts(2, kWork), 1);
  EXPECT_EQ(slots_of({4, 3, 2000, 5, 900, 2, 5, 5}).data_parallel_experts(16, kWork), 2);
  EXPECT_EQ(slots_of({300}).data_parallel_experts(16, kWork), 1);
}

// Reading a weight takes as long for one row as for several, so sixteen threads read sixteen weights in parallel.
TEST(ExpertSlots, ExpertsOfOneRowRunInParallel) {
  EXPECT_EQ(slots_of(std::vector<int64_t>(16, 1)).data_parallel_experts(16, kWork), 0);
  // Otherwise one thread would process two experts.
  EXPECT_EQ(slots_of(std::vector<int64_t>(17, 1)).data_parallel_experts(16, kWork), 1);
}

TEST(ExpertSlots, OneThreadOrLittleWorkMakesAllExpertsDataParallel) {
  const auto slots = slots_of({8, 8, 8, 8, 8});
  EXPECT_EQ(slots.data_parallel_experts(1, kWork), 5);
  EXPECT_EQ(slots.data_parallel_experts(4, 1000), 5);
}

}  // namespace
}  // namespace evenkeel::nn::kernels
