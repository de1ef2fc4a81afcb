// One path for a task, whatever its rows are written as: the same questions and answers in every format give the same
// tokens, targets, options and refusals, by every template.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/plain/files.h"
#include "base/testing.h"
#include "data/prompt.h"
#include "data/row_files.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel {
namespace {

struct Asked {
  std::string question, answer;
};

/// A row of each format that asks and answers the same.
std::map<std::string, OrderedJson> formats_of(const Asked& row) {
  const OrderedJson user{{"role", "user"}, {"content", row.question}};
  const OrderedJson assistant{{"role", "assistant"}, {"content", row.answer}};
  const OrderedJson text{{"type", "text"}, {"text", row.question}};
  const OrderedJson parts{{"role", "user"}, {"content", OrderedJson::array({text})}};
  const OrderedJson human{{"from", "human"}, {"value", row.question}}, gpt{{"from", "gpt"}, {"value", row.answer}};
  const auto list = [](std::initializer_list<OrderedJson> of) {
    auto made = OrderedJson::array();
    for (const auto& one : of) made.push_back(one);
    return made;
  };
  return {{"alpaca", {{"instruction", row.question}, {"input", ""}, {"output", row.answer}}},
          {"dolly", {{"instruction", row.question}, {"context", ""}, {"response", row.answer}, {"category", "qa"}}},
          {"prompt_completion", {{"prompt", row.question}, {"completion", row.answer}}},
          {"talk", {{"prompt", list({user})}, {"completion", list({assistant})}}},
          {"messages", {{"messages", list({user, assistant})}}},
          {"parts", {{"messages", list({parts, assistant})}}},
          {"sharegpt", {{"conversations", list({human, gpt})}}}};
}

class RowFormats : public ::testing::TestWithParam<PromptTemplate> {
 protected:
  RowFormats() {
    const std::vector<std::string> texts = {"which of these is it? the correct answer is answer1 or answer2"};
    write_file_atomic(folder_.path() / "tokenizer.json", train_tokenizer(texts, {.vocab_size = 320}));
    write_file_atomic(folder_.path() / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    write_file_atomic(
        folder_.path() / "chat_template.jinja",
        "{% for m in messages %}### {{ m.role }}:\n{{ m.content if m.content is string else "
        "m.content[0].text }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}### assistant:\n{% endif %}");
  }

  TaskRows read(const OrderedJson& row, bool choices = false) const {
    const auto file = folder_.path() / "row.jsonl";
    write_file_atomic(file, row.dump() + "\n");
    return file_rows({.patterns = {file.string()},
                      .choices = choices,
                      .options = {"answer1", "answer2"},
                      .conversations = GetParam() == PromptTemplate::kChat,
                      .compared = choices});
  }

  Example example(const Row& row) const {
    const auto rows = tokenize_rows(std::array{row}, tokenizer(), {.form = GetParam(), .cutoff = 1000, .eos = 0});
    return rows.examples.at(0);
  }

  Tokenizer tokenizer() const { return Tokenizer::of_model(folder_.path()); }

  const testing::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Templates, RowFormats,
                         ::testing::Values(PromptTemplate::kPaper, PromptTemplate::kLlmAdapters, PromptTemplate::kChat,
                                           PromptTemplate::kPlain),
                         [](const auto& form) { return std::string(config::name_of(form.param)); });

const std::vector<Asked> kAsked = {{"which of these is it?", " the correct answer is answer1"},
                                   {"answer2 or answer1?", "answer1"},
                                   {"Is \"<|endoftext|>\" it?", " it is <|endoftext|>, so"},
                                   {"Was ist größer? 大?", " das größere — 大"},
                                   {"two\n\nlines\n", " one\nor\n\ntwo "}};

TEST_P(RowFormats, TheSameRowGivesTheSameTokensAndTargetsInEveryFormat) {
  for (const auto& asked : kAsked) {
    const auto expected = example(read(formats_of(asked).at("prompt_completion")).rows.at(0));
    for (const auto& [name, json] : formats_of(asked)) {
      const auto got = example(read(json).rows.at(0));
      EXPECT_EQ(got.ids, expected.ids) << name << ": " << asked.question;
      EXPECT_EQ(got.first_target, expected.first_target) << name << ": " << asked.question;
      EXPECT_TRUE(got.between == expected.between) << name << ": " << asked.question;
      EXPECT_EQ(got.targets(), expected.targets()) << name;
    }
  }
}

/// What a ranking is made of: the prompt, the options, and the output that each option is put into.
TEST_P(RowFormats, TheSameChoiceIsRankedInTheSameTextInEveryFormat) {
  const auto tokenizer_of_model = tokenizer();
  const Prompts prompts(tokenizer_of_model, GetParam());
  for (const auto& [name, json] : formats_of(kAsked[0])) {
    auto with_answer = json;
    with_answer["answer"] = "answer1";
    const auto row = read(with_answer, /*choices=*/true).rows.at(0);
    const auto expected = read(formats_of(kAsked[0]).at("alpaca")).rows.at(0);
    EXPECT_EQ(row.output, kAsked[0].answer) << name;
    EXPECT_EQ(row.answer, "answer1") << name;
    EXPECT_EQ(row.options, (std::vector<std::string>{"answer1", "answer2"})) << name;
    EXPECT_EQ(prompts.evaluation_prompt(row), prompts.evaluation_prompt(expected)) << name;
  }
}

TEST_P(RowFormats, TheSameFaultsAreRefusedInEveryFormat) {
  const std::vector<Asked> faults = {
      {"", "answer1"}, {" \n", "answer1"}, {"which?", ""}, {"which?", " \n"}, {"which?", "answer3"}};
  for (const auto& fault : faults)
    for (const auto& [name, json] : formats_of(fault)) {
      const auto refusal = testing::refusal([&, &json = json] { read(json, /*choices=*/true); });
      EXPECT_EQ(refusal.find("[data] "), 0u)
          << name << " takes \"" << fault.question << "\", \"" << fault.answer << "\": " << refusal;
      EXPECT_NE(refusal.find("row.jsonl:1"), std::string::npos) << refusal;
    }
}

}  // namespace
}  // namespace evenkeel
