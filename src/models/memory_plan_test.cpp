#include "models/memory_plan.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel::models {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

machine::Memory machine_with(int64_t available, int64_t address_space = kNoLimit) {
  return {.physical = 64 * kGiB, .available = available, .address_space = address_space, .limited_by = "free memory"};
}

/// A plan of 4 GiB of memory, 3 of which can be reduced, and 10 GiB of files.
const MemoryPlan kPlan{.parts = {{"the program", kGiB, ""},
                                 {"adapters", kGiB, "lora.rank"},
                                 {"activations", 2 * kGiB, "train.batch_size"}},
                       .mapped = 10 * kGiB};

TEST(MemoryPlan, FitsIfPartsAndFilesFit) { EXPECT_EQ(verdict(kPlan, machine_with(20 * kGiB)), MemoryVerdict::kFits); }

TEST(MemoryPlan, IsTightIfFilesOrATenthDoNotFit) {
  EXPECT_EQ(verdict(kPlan, machine_with(13 * kGiB)), MemoryVerdict::kTight);
  EXPECT_EQ(verdict({kPlan.parts, 0}, machine_with(4 * kGiB + kGiB / 4)), MemoryVerdict::kTight);
}

TEST(MemoryPlan, IsTooLargeForMemoryOrAddressSpace) {
  EXPECT_EQ(verdict(kPlan, machine_with(4 * kGiB - 1)), MemoryVerdict::kTooLarge);
  EXPECT_EQ(verdict(kPlan, machine_with(20 * kGiB, 13 * kGiB)), MemoryVerdict::kTooLarge);
}

TEST(MemoryPlan, ARefusalNamesNeedAvailabilityAndAKeyToReduce) {
  try {
    require_memory(kPlan, machine_with(3 * kGiB, 12 * kGiB), "the run");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[config] the run needs about 4.0 GiB of memory and maps 10.0 GiB of files, 3.0 GiB are available "
                 "(free memory) and 12.0 GiB of address space (ulimit -v); 2.0 GiB are activations: lower "
                 "train.batch_size");
    EXPECT_EQ(error.exit_code(), 1);
  }
  require_memory(kPlan, machine_with(20 * kGiB), "the run");
}

TEST(MemoryPlan, OfSeveralRanksIsThatOfEachManyTimes) {
  const auto plan = of_ranks(kPlan, 3);
  EXPECT_EQ(plan.needed(), 3 * kPlan.needed());
  EXPECT_EQ(plan.parts[2].what, "activations of each of 3 ranks");
  EXPECT_EQ(plan.parts[2].lower, "train.batch_size or the number of ranks");
  EXPECT_EQ(plan.parts[0].lower, "the number of ranks");
  EXPECT_EQ(of_ranks(kPlan, 1).parts[0].what, "the program");
}

TEST(MemoryPlan, SizesBeyond64BitsAreTooLarge) {
  const ModelSpec spec{.family = "olmoe",
                       .vocab_size = 50304,
                       .hidden_size = int64_t{1} << 28,
                       .num_layers = 1 << 20,
                       .num_kv_heads = 16,
                       .head_width = int64_t{1} << 24,
                       .num_experts = 64,
                       .top_k = 8,
                       .work = {.kept = 0x1p51, .kept_by_expert = 0x1p49}};
  const MemoryPlan plan{.parts = {{"x", kept_bytes(spec, {.tokens = int64_t{1} << 44, .targets = 1, .top_k = 8}), ""},
                                  {"y", cache_bytes(spec, 65'536, int64_t{1} << 28), ""}},
                        .mapped = 0};
  EXPECT_GT(plan.needed(), int64_t{1} << 61);
  EXPECT_EQ(verdict(plan, machine_with(kNoLimit)), MemoryVerdict::kFits);
  EXPECT_EQ(verdict(plan, machine_with(int64_t{1} << 60)), MemoryVerdict::kTooLarge);
}

/// The sizes are OLMoE-1B-7B's, with a micro-batch of 2048 tokens as in the paper. docs/results.md compares whole runs
/// with measurements.
TEST(MemoryPlan, KeptBytesOfOlmoeFollowItsShapes) {
  const testing::TemporaryFile config(R"({"model_type": "olmoe", "vocab_size": 50304, "hidden_size": 2048,
    "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "num_experts": 64,
    "num_experts_per_tok": 8})");
  const auto olmoe = load_shape(config.path())->spec();
  // 4-byte values per token and layer: 8 hidden rows, 4 values per expert, and two inner rows per active expert.
  EXPECT_EQ(kept_bytes(olmoe, {.tokens = 2048, .targets = 0, .top_k = 1}),
            int64_t{4} * 16 * 2048 * (16384 + 256 + 2048));
  EXPECT_EQ(kept_bytes(olmoe, {.tokens = 2048, .targets = 0, .top_k = 8}),
            int64_t{4} * 16 * 2048 * (16384 + 256 + 16384));
  EXPECT_EQ(cache_bytes(olmoe, 3, 100), int64_t{4} * 2 * 16 * 2048 * 300);
  EXPECT_GT(passing_bytes(olmoe, {.tokens = 2048, .targets = 2048, .top_k = 8}),
            passing_bytes(olmoe, {.tokens = 2048, .targets = 2048, .top_k = 1}));
}

TEST(MemoryPlan, ASoftCapOfScoresSavesTwoMatricesPerHeadAndLayer) {
  const ModelSpec plain{.family = "gemma2", .num_layers = 3, .work = {.scores = 3 * 2 * 40}},
      capped{.family = "gemma2", .num_layers = 3, .work = {.scores = 3 * 2 * 40, .capped_heads = 3 * 5}};
  const PassShape pass{.tokens = 11, .sequences = 2, .longest = 7};
  EXPECT_EQ(padded_attention_bytes(plain, pass), 4 * 2 * 7 * 4 * 3 * 40);
  EXPECT_EQ(padded_attention_bytes(capped, pass) - padded_attention_bytes(plain, pass),
            4 * 2 * 7 * 7 * 5 * (2 * 3 + 3));
}

}  // namespace
}  // namespace evenkeel::models
