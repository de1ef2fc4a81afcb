#include "scoring/answering.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/testing.h"
#include "models/testing.h"
#include "scoring/testing.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::scoring {
namespace {

data::TaskInfo choice_of(const std::vector<std::string>& answers) {
  return {.name = "choice", .file = "", .answers = answers, .source = ""};
}

TEST(IsRead, IsFalseWhileFurtherTextCanChangeTheAnswer) {
  const auto read = [](const std::vector<std::string>& answers, const std::string& output) {
    return is_read(choice_of(answers), {}, output);
  };
  EXPECT_FALSE(read({"yes, but", "yes"}, "it is yes")) << "\", but\" may follow";
  EXPECT_TRUE(read({"yes, but", "yes"}, "it is yes, but"));
  EXPECT_TRUE(read({"yes, but", "yes", "no"}, "it is no"));
  EXPECT_FALSE(read({"yes", "no"}, "it is"));
  EXPECT_FALSE(read({"None of them", "all"}, "None of them")) << "the lower-cased text has no answer yet";
  EXPECT_FALSE(read({"true", "false"}, "False, or true")) << "the lower-cased text has another answer";
  EXPECT_TRUE(read({"true", "false"}, "true or false"));
}

TEST(IsRead, IsFalseForOptionsOfTheRow) {
  data::Row of_options;
  of_options.options = {"yes", "no"};
  EXPECT_FALSE(is_read(choice_of({}), of_options, "yes")) << "it may be the beginning of a word";
}

/// Returns a tokenizer without merges: every character is a token.
const tokenizer::Tokenizer& characters() {
  static const tokenizer::Tokenizer made =
      tokenizer::Tokenizer::load(testing::TemporaryFile(tokenizer::train_tokenizer({}, {.vocab_size = 258})).path());
  return made;
}

/// Returns a model that writes `text`, whose characters are distinct, after every prompt, and then its last character
/// without end. Attention and experts add nothing, so that the last token alone decides the next.
std::unique_ptr<models::CausalLm> model_that_writes(const std::string& text) {
  auto model = testing::random_model(31, 258);
  auto weights = model->parameters();
  for (auto& [name, weight] : weights)
    if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight")) weight.zero_();
  const auto embedding_VD = weights.at("model.embed_tokens.weight"), head_VD = weights.at("lm_head.weight");
  head_VD.zero_();
  embedding_VD.zero_();
  embedding_VD.select(1, 0).fill_(1);  // of the tokens that are not of the text
  int64_t state = 0;
  for (const int64_t token : characters().encode(text)) {
    head_VD[token][state].fill_(9);
    embedding_VD[token].zero_();
    embedding_VD[token][++state].fill_(1);
  }
  head_VD[characters().encode(text).back()][state].fill_(9);
  return model;
}

TEST(AnswerRows, AnOutputThatIsNotAskedForEndsWhereItsAnswerIsRead) {
  const auto model = model_that_writes("yes, but!");
  const auto task = choice_of({"yes, but", "yes"});
  std::vector<data::Row> rows;
  for (const auto* answer : {"yes, but", "yes", "yes, but"})
    rows.push_back({.instruction = "Is it so?", .input = "", .output = answer, .answer = answer});
  const testing::TemporaryFolder folder;
  AnswerJournal journal(folder.path() / "answers.jsonl");
  const EvaluationOptions options{.max_new_tokens = 24, .journal = &journal, .journal_key = "one"};
  std::vector<Prediction> whole;
  const auto of_whole = testing::evaluate_task(*model, characters(), {}, task, {rows}, options, &whole);
  const auto score = testing::evaluate_task(*model, characters(), {}, task, {rows}, options);
  EXPECT_DOUBLE_EQ(of_whole.accuracy, 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.accuracy, 2.0 / 3);
  EXPECT_EQ(whole.at(0).output, "yes, but" + std::string(16, '!'));
  const auto* as_read = journal.find("one; with likelihoods; outputs as far as they are read", 0);
  ASSERT_NE(as_read, nullptr);
  for (const auto& one : as_read->answers) EXPECT_EQ(one.output, "yes, but");
}

}  // namespace
}  // namespace evenkeel::scoring
