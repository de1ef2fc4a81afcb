// Checks the special tokens that a tokenizer puts around a text, with each prompt template.
#include <gtest/gtest.h>

#include <array>

#include "base/plain/json.h"
#include "base/testing.h"
#include "data/prompt.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::data {
namespace {

constexpr int64_t kBegin = 1, kEnd = 0;
constexpr std::array kWithoutTurns = {PromptTemplate::kPaper, PromptTemplate::kLlmAdapters, PromptTemplate::kPlain};

/// Writes a folder whose tokenizer puts <|padding|> before a text and, if `ends`, <|endoftext|> after it.
class BeginToken : public ::testing::Test {
 protected:
  tokenizer::Tokenizer tokenizer(bool ends) const {
    auto json = parse_json(tokenizer::train_tokenizer(std::vector<std::string>{"is it so"}, {.vocab_size = 300}), "");
    auto single = Json::array({{{"SpecialToken", {{"id", "<b>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}});
    if (ends) single.push_back({{"SpecialToken", {{"id", "<e>"}, {"type_id", 0}}}});
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", single},
                              {"pair", Json::array()},
                              {"special_tokens", {{"<b>", {{"ids", {kBegin}}}}, {"<e>", {{"ids", {kEnd}}}}}}};
    write_file_atomic(folder_.path() / "tokenizer.json", json.dump());
    write_file_atomic(folder_.path() / "tokenizer_config.json",
                      R"({"bos_token": "<|padding|>", "eos_token": "<|endoftext|>"})");
    write_file_atomic(folder_.path() / "chat_template.jinja",
                      "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' "
                      "%}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
    return tokenizer::Tokenizer::of_model(folder_.path());
  }

  static std::vector<int64_t> around(std::vector<int64_t> ids, bool ends) {
    ids.insert(ids.begin(), kBegin);
    if (ends) ids.push_back(kEnd);
    return ids;
  }

  const Row row_{.instruction = "is it?", .input = "", .output = "so", .answer = "so"};
  const testing::TemporaryFolder folder_;
};

TEST_F(BeginToken, PromptsBeginWithItAndDoNotEndWithTheEndToken) {
  for (const bool ends : {false, true}) {
    const auto model = tokenizer(ends);
    for (const auto form : kWithoutTurns) {
      const Prompts prompts(model, form);
      const auto text = prompts.evaluation_prompt(row_);
      EXPECT_EQ(prompts.encode(text), around(model.encode(text, false), false)) << config::name_of(form);
    }
  }
}

TEST_F(BeginToken, TrainingTextsHaveItOnceAndTheAnswerIsTheTarget) {
  for (const bool ends : {false, true}) {
    const auto model = tokenizer(ends);
    for (const auto form : kWithoutTurns) {
      const auto text = training_prompt(row_, form) + row_.output;
      const auto answer = static_cast<int64_t>(model.encode(training_prompt(row_, form), false).size()) + 1;
      for (const int64_t eos : {int64_t{-1}, kEnd}) {
        const auto rows = tokenize_rows(std::array{row_}, model, {.form = form, .cutoff = 1000, .eos = eos});
        const auto& example = rows.examples.at(0);
        EXPECT_EQ(example.ids, around(model.encode(text, false), ends || eos == kEnd)) << config::name_of(form);
        EXPECT_EQ(example.first_target, answer) << config::name_of(form);
      }
    }
  }
}

TEST_F(BeginToken, AChatTemplateWritesItOnce) {
  const auto model = tokenizer(/*ends=*/true);
  const Prompts prompts(model, PromptTemplate::kChat);
  const auto ids = prompts.encode(prompts.evaluation_prompt(row_));
  EXPECT_EQ(ids, model.encode("<|padding|>[user]is it?[assistant]", false));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kBegin), 1);
  const auto rows = tokenize_rows(std::array{row_}, model, {.form = PromptTemplate::kChat, .cutoff = 99, .eos = kEnd});
  EXPECT_EQ(rows.examples.at(0).ids, model.encode("<|padding|>[user]is it?[assistant]so<|endoftext|>", false));
}

TEST_F(BeginToken, ItCountsWhenAContextIsCut) {
  const auto model = tokenizer(/*ends=*/false);
  Row row = row_;
  for (int i = 0; i < 40; ++i) row.input += "it is so ";
  for (const auto form : kWithoutTurns) {
    const Prompts prompts(model, form);
    Row empty = row;
    empty.input = "x";
    const auto limit = static_cast<int64_t>(prompts.encode(prompts.evaluation_prompt(empty)).size()) + 20;
    const auto ids = prompts.encode(prompts.evaluation_prompt(prompts.fit_context(row, limit)));
    EXPECT_LE(std::ssize(ids), limit) << config::name_of(form);
    EXPECT_EQ(ids.front(), kBegin);
    const auto cutoff = static_cast<int64_t>(prompts.encode_whole(prompts.transcript(empty).text).size()) + 20;
    const auto rows = tokenize_rows(std::array{row}, model, {.form = form, .cutoff = cutoff, .eos = kEnd});
    EXPECT_EQ(rows.windowed, 1) << config::name_of(form);
    EXPECT_LE(std::ssize(rows.examples.at(0).ids), cutoff);
    EXPECT_EQ(rows.examples.at(0).ids.front(), kBegin);
    EXPECT_EQ(rows.examples.at(0).ids.back(), kEnd);
  }
}

}  // namespace
}  // namespace evenkeel::data
