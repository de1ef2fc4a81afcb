#include "fed/exchange/test_rows.h"

#include "base/testing.h"
#include "models/testing.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::fed {
namespace {

class TestRowsCacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<const scoring::PreparedTask> make() {
    ++made_;
    data::TaskRows set;
    for (const auto* answer : {"true", "false", "true"})
      set.rows.push_back({.instruction = concat("Is it ", answer, "?\n\nAnswer format: true/false"),
                          .input = "",
                          .output = concat("the correct answer is ", answer),
                          .answer = answer});
    return std::make_shared<scoring::PreparedTask>(data::find_task("boolq"), set, tokenizer_, model_->spec(),
                                                   scoring::EvaluationOptions{.max_new_tokens = 4});
  }
  std::shared_ptr<const scoring::PreparedTask> get(TestRowsCache& cache, const TestRowsKey& key) {
    return cache.get(key, [this] { return make(); });
  }

  std::unique_ptr<models::CausalLm> model_ = testing::random_model(3, 300);
  tokenizer::Tokenizer tokenizer_ = tokenizer::Tokenizer::load(
      testing::TemporaryFile(tokenizer::train_tokenizer(std::vector<std::string>{"true or false"}, {.vocab_size = 260}))
          .path());
  int made_ = 0;
};

TEST_F(TestRowsCacheTest, RowsArePreparedOncePerTaskClientAndLimit) {
  TestRowsCache cache;
  const auto first = get(cache, {.task = "boolq", .limit = 3});
  EXPECT_EQ(get(cache, {.task = "boolq", .limit = 3}), first);
  EXPECT_EQ(made_, 1);
  for (const auto& other :
       {TestRowsKey{.task = "piqa", .limit = 3}, TestRowsKey{.task = "boolq", .limit = 2},
        TestRowsKey{.task = "boolq", .own_of = 0, .limit = 3}, TestRowsKey{.task = "boolq", .own_of = 1, .limit = 3},
        TestRowsKey{.task = "boolq", .limit = 3, .left_out = {1}}})
    EXPECT_NE(get(cache, other), first);
  EXPECT_EQ(made_, 6);
}

TEST_F(TestRowsCacheTest, WhatDoesNotFitAnyMoreIsPreparedEachTime) {
  const auto bytes = make()->bytes();
  made_ = 0;
  TestRowsCache cache(bytes + bytes / 2);
  const auto first = get(cache, {.task = "one"});
  for (int i = 0; i < 3; ++i) get(cache, {.task = "two"});
  EXPECT_EQ(made_, 4);
  EXPECT_EQ(get(cache, {.task = "one"}), first);
  EXPECT_EQ(made_, 4);
}

TEST_F(TestRowsCacheTest, APreparedTaskHasTokensAndOfTextsTheQuestion) {
  const auto task = make();
  ASSERT_EQ(task->rows().size(), 3u);
  EXPECT_EQ(task->questions(), 2);
  EXPECT_EQ(task->chance(), 0.5);
  EXPECT_EQ(task->rows()[1].answer, "false");
  EXPECT_EQ(task->rows()[1].instruction, "Is it false?\n\nAnswer format: true/false");
  EXPECT_TRUE(task->rows()[1].output.empty());
  EXPECT_EQ(task->answers(1), (std::vector<std::string>{"true", "false"}));
  data::Row whole;
  whole.instruction = "Is it false?\n\nAnswer format: true/false";
  const auto prompt = data::evaluation_prompt(whole, data::PromptTemplate::kPaper);
  EXPECT_EQ(task->prompt(1), tokenizer_.encode(prompt));
  auto joined = task->prompt(1);
  const auto answer = task->answer_tokens(1).at(1);
  joined.insert(joined.end(), answer.begin(), answer.end());
  EXPECT_EQ(joined, tokenizer_.encode(prompt + "the correct answer is false"));
  EXPECT_LT(task->bytes(), 16384u);
}

}  // namespace
}  // namespace evenkeel::fed
