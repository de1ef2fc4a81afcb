#include "data/example.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "base/plain/json.h"

namespace evenkeel::data {
namespace {

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}
using Ids = std::vector<int64_t>;

TEST(Pack, ConcatenatesSequences) {
  const std::vector<Example> examples = {{.ids = {5, 6, 7}, .first_target = 2}, {.ids = {8, 9}, .first_target = 1}};
  const auto batch = pack(examples);
  EXPECT_EQ(numbers(batch.ids), (Ids{5, 6, 7, 8, 9}));
  EXPECT_EQ(numbers(batch.positions), (Ids{0, 1, 2, 0, 1}));
  EXPECT_EQ(batch.offsets, (Ids{0, 3, 5}));
  EXPECT_EQ(batch.tokens(), 5);
  EXPECT_EQ(batch.sequences(), 2);
}

TEST(Pack, ATargetIsPredictedByTheRowBeforeIt) {
  const std::vector<Example> examples = {{.ids = {5, 6, 7}, .first_target = 2}, {.ids = {8, 9}, .first_target = 1}};
  const auto batch = pack(examples);
  EXPECT_EQ(numbers(batch.target_rows), (Ids{1, 3}));
  EXPECT_EQ(numbers(batch.targets), (Ids{7, 9}));
}

TEST(Pack, TheFirstTokenIsNeverATarget) {
  const std::vector<Example> examples = {{.ids = {5, 6}, .first_target = 0}};
  EXPECT_EQ(numbers(pack(examples).targets), (Ids{6}));
}

TEST(Pack, AnExampleWithoutTargetsOnlyAddsTokens) {
  const std::vector<Example> examples = {{.ids = {5, 6, 7}, .first_target = 3}};
  const auto batch = pack(examples);
  EXPECT_EQ(batch.tokens(), 3);
  EXPECT_EQ(batch.targets.numel(), 0);
}

TEST(Pack, TokensBetweenAnswersAreNoTargets) {
  const std::vector<Example> examples = {
      {.ids = {5, 6}}, {.ids = {1, 2, 3, 4, 5, 6, 7}, .first_target = 2, .between = {{3, 5}, {6, 7}}}};
  const auto batch = pack(examples);
  EXPECT_EQ(numbers(batch.targets), (Ids{6, 3, 6}));
  EXPECT_EQ(numbers(batch.target_rows), (Ids{0, 3, 6}));
  EXPECT_EQ(examples[1].targets(), 2);
}

TEST(Pack, PointersAndValuesGiveTheSameBatch) {
  const std::vector<Example> examples = {{.ids = {5, 6, 7}}, {.ids = {8, 9}}};
  const std::vector<const Example*> reversed = {&examples[1], &examples[0]};
  EXPECT_EQ(numbers(pack(reversed).ids), (Ids{8, 9, 5, 6, 7}));
}

TEST(PackShared, TokensWithTheSamePrefixShareARow) {
  const std::vector<Example> examples = {{.ids = {5, 6, 7}, .first_target = 2},
                                         {.ids = {5, 6, 8, 7}, .first_target = 2},
                                         {.ids = {6, 5, 8}, .first_target = 2},
                                         {.ids = {5, 6, 7, 9}, .first_target = 2}};
  const auto batch = pack_shared(examples);
  EXPECT_EQ(numbers(batch.ids), (Ids{5, 6, 7, 8, 7, 6, 5, 8, 9}));
  EXPECT_EQ(numbers(batch.positions), (Ids{0, 1, 2, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(batch.offsets, (Ids{0, 3, 7, 10, 14}));
  EXPECT_EQ(numbers(batch.rows_T), (Ids{0, 1, 2, 0, 1, 3, 4, 5, 6, 7, 0, 1, 2, 8}));
  EXPECT_EQ(numbers(batch.target_rows), (Ids{1, 1, 3, 6, 1, 2}));
  EXPECT_EQ(numbers(batch.targets), numbers(pack(examples).targets));
  EXPECT_EQ(batch.tokens(), 14);
}

TEST(Pack, ReturnsTheEndOfEachMicroBatch) {
  const std::vector<Example> examples = {{.ids = {5, 6, 7}, .first_target = 2},
                                         {.ids = {5, 6, 8, 7}, .first_target = 2},
                                         {.ids = {6, 5, 8}, .first_target = 3},
                                         {.ids = {5, 6, 7, 9}, .first_target = 1}};
  for (const auto& batch : {pack(examples, 2), pack_shared(examples, 2)}) {
    ASSERT_EQ(batch.ends.size(), 2);
    EXPECT_EQ(batch.ends[0].tokens, 7);
    EXPECT_EQ(batch.ends[0].targets, 3);
    EXPECT_EQ(batch.ends[1].tokens, 14);
    EXPECT_EQ(batch.ends[1].targets, 6);
  }
  const auto one = pack(examples).micro_batch_ends();
  ASSERT_EQ(one.size(), 1);
  EXPECT_EQ(one[0].tokens, 14);
  EXPECT_EQ(one[0].targets, 6);
  EXPECT_THROW(pack(examples, 3), Error);
}

TEST(PackShared, FewSharedTokensAreNotShared) {
  Ids long_one(20), other(20);
  for (int64_t i = 0; i < 20; ++i) {
    long_one[static_cast<size_t>(i)] = i;
    other[static_cast<size_t>(i)] = i < 2 ? i : i + 40;
  }
  const std::vector<Example> few = {{.ids = long_one}, {.ids = other}};
  EXPECT_FALSE(pack_shared(few).rows_T.defined());
  EXPECT_TRUE(at::equal(pack_shared(few).ids, pack(few).ids));
  const std::vector<Example> more = {few[0], few[1], few[0]};
  EXPECT_EQ(pack_shared(more).ids.size(0), 38);
}

TEST(PackIds, EveryPositionFromTheSecondOnIsATarget) {
  const std::vector<Ids> sequences = {{1, 2, 3}, {4}};
  const auto batch = pack_ids(sequences);
  EXPECT_EQ(numbers(batch.targets), (Ids{2, 3}));
  EXPECT_EQ(numbers(batch.target_rows), (Ids{0, 1}));
  EXPECT_EQ(batch.sequences(), 2);
}

TEST(PackIds, RejectsAnEmptySequence) {
  const std::vector<Ids> sequences = {{1, 2}, {}};
  EXPECT_THROW(pack_ids(sequences), Error);
}

Row asking(std::string instruction, std::string input) {
  Row row;
  row.instruction = std::move(instruction);
  row.input = std::move(input);
  return row;
}

TEST(ComparableQuestion, IsTheSameForATextAndItsParts) {
  for (const std::string end : {"", "\n", "\n\n", "\n\n\n"})
    for (const std::string begin : {"", "\n", "\n\n"}) {
      const auto parts = asking("Q:" + end, begin + "x"), text = asking(question_text(parts), "");
      Row message;
      message.turns = {{"user", question_text(parts)}, {"assistant", "a"}};
      EXPECT_EQ(comparable_question(parts), comparable_question(text)) << Json(text.instruction);
      EXPECT_EQ(comparable_question(message), comparable_question(text)) << Json(text.instruction);
    }
  EXPECT_NE(comparable_question(asking("Q:\n", "x")), comparable_question(asking("Q:", "x")));
  EXPECT_NE(comparable_question(asking("Q:\nx", "")), comparable_question(asking("Q:", "x")));
  EXPECT_EQ(comparable_question(asking("", "x")), comparable_question(asking("x", "")));
}

}  // namespace
}  // namespace evenkeel::data
