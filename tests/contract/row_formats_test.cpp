// Checks that the format of a row does not matter. The same questions and answers give the same tokens, targets,
// options, rankings, scores and errors in every format and with every template. The order of options changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "base/plain/files.h"
#include "base/testing.h"
#include "data/prompt.h"
#include "data/row_files.h"
#include "data/tasks.h"
#include "models/testing.h"
#include "scoring/testing.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel {
namespace {

struct Asked {
  std::string question, answer;
};

/// Returns the same question and answer as a row of each format.
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

class RowFormats : public ::testing::TestWithParam<data::PromptTemplate> {
 protected:
  RowFormats() {
    const std::vector<std::string> texts = {"which of these is it? the correct answer is answer1 or answer2"};
    write_file_atomic(folder_.path() / "tokenizer.json", tokenizer::train_tokenizer(texts, {.vocab_size = 320}));
    write_file_atomic(folder_.path() / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    write_file_atomic(
        folder_.path() / "chat_template.jinja",
        "{% for m in messages %}### {{ m.role }}:\n{{ m.content if m.content is string else "
        "m.content[0].text }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}### assistant:\n{% endif %}");
  }

  data::TaskRows read(const OrderedJson& row, bool choices = false) const {
    const auto file = folder_.path() / "row.jsonl";
    write_file_atomic(file, row.dump() + "\n");
    return data::file_rows({.patterns = {file.string()},
                            .choices = choices,
                            .options = {"answer1", "answer2"},
                            .conversations = GetParam() == data::PromptTemplate::kChat,
                            .compared = choices});
  }

  data::Example example(const data::Row& row) const {
    const auto rows = data::tokenize_rows(std::array{row}, tokenizer(), {.form = GetParam(), .cutoff = 1000, .eos = 0});
    return rows.examples.at(0);
  }

  tokenizer::Tokenizer tokenizer() const { return tokenizer::Tokenizer::of_model(folder_.path()); }

  const testing::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Templates, RowFormats,
                         ::testing::Values(data::PromptTemplate::kPaper, data::PromptTemplate::kLlmAdapters,
                                           data::PromptTemplate::kChat, data::PromptTemplate::kPlain),
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

/// The prompt, the options, and the output into which each option is inserted must be equal.
TEST_P(RowFormats, TheSameChoiceIsRankedInTheSameTextInEveryFormat) {
  const auto tokenizer_of_model = tokenizer();
  const data::Prompts prompts(tokenizer_of_model, GetParam());
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

TEST_P(RowFormats, TheSameErrorsAreReportedInEveryFormat) {
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

/// A multiple-choice question as in a user's file.
struct Choice {
  Asked asked;
  std::vector<std::string> options;
  std::string gold;
};

/// Generates questions with two to five options, some of which contain another, and answers with the right one.
class Choices {
 public:
  explicit Choices(uint32_t seed) : draw_(seed) {}

  Choice next() {
    Choice one;
    std::vector<std::string> all = {"no", "no way", "sí",      "síntoma",  "对",
                                    "错", "B",      "answer1", "answer12", "oak tree"};
    std::shuffle(all.begin(), all.end(), draw_);
    one.options.assign(all.begin(), all.begin() + 2 + draw_() % 4);
    one.gold = one.options[draw_() % one.options.size()];
    for (int words = 1 + static_cast<int>(draw_() % 5); words > 0; --words) one.asked.question += of(kWords) + " ";
    one.asked.question += "which?";
    one.asked.answer = of(kLeads) + one.gold + of(kTails);
    return one;
  }

 private:
  static constexpr std::array kWords{"which", "of", "these", "größer", "is", "it", "\n", "大"};
  static constexpr std::array kLeads{"", " ", "it is ", " the correct answer is ", "Because of it: "};
  static constexpr std::array kTails{"", ".", ", as said", " or so"};

  template <size_t n>
  std::string of(const std::array<const char*, n>& texts) {
    return texts[draw_() % n];
  }
  std::mt19937 draw_;
};

std::vector<Choice> some_choices(uint32_t seed, size_t count) {
  Choices from(seed);
  std::vector<Choice> out;
  for (size_t i = 0; i < count; ++i) out.push_back(from.next());
  return out;
}

std::vector<std::string> rotated(std::vector<std::string> options, size_t by) {
  std::rotate(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(by % options.size()), options.end());
  return options;
}

class Rankings : public RowFormats {
 protected:
  data::Row choice_row(const std::string& format, const Choice& choice) const {
    auto json = formats_of(choice.asked).at(format);
    json["options"] = choice.options;
    json["answer"] = choice.gold;
    return read(json, /*choices=*/true).rows.at(0);
  }

  std::vector<data::Row> rows_of(const std::string& format, std::span<const Choice> choices) const {
    std::vector<data::Row> rows;
    for (const auto& choice : choices) rows.push_back(choice_row(format, choice));
    return rows;
  }

  std::vector<scoring::Prediction> predict(data::Scoring scoring, std::vector<data::Row> rows,
                                           const models::CausalLm& model) const {
    const data::TaskInfo task{
        .name = "files", .file = "", .answers = {}, .source = "", .scoring = scoring, .family = "files"};
    std::vector<scoring::Prediction> predictions;
    testing::evaluate_task(model, tokenizer(), {}, task, {std::move(rows)}, {.form = GetParam(), .max_new_tokens = 6},
                           &predictions);
    return predictions;
  }

  std::vector<scoring::Prediction> rank(std::vector<data::Row> rows) const {
    return predict(data::Scoring::kChoice, std::move(rows), *model_);
  }

  /// Returns the negative log-likelihood of every option as the whole answer.
  std::vector<double> option_scores(const std::string& format, std::span<const Choice> choices) const {
    std::vector<data::Row> rows;
    for (const auto& choice : choices)
      for (const auto& option : choice.options)
        rows.push_back(read(formats_of({choice.asked.question, option}).at(format)).rows.at(0));
    std::vector<double> scores;
    for (const auto& one : predict(data::Scoring::kNll, std::move(rows), *model_)) scores.push_back(one.nll);
    return scores;
  }

  const std::unique_ptr<models::CausalLm> model_ = testing::random_model(33, tokenizer().vocab_size());
};

INSTANTIATE_TEST_SUITE_P(Templates, Rankings,
                         ::testing::Values(data::PromptTemplate::kPaper, data::PromptTemplate::kLlmAdapters,
                                           data::PromptTemplate::kChat, data::PromptTemplate::kPlain),
                         [](const auto& form) { return std::string(config::name_of(form.param)); });

TEST_P(Rankings, RankingsAndAnswersAreEqualInEveryFormat) {
  const auto choices = some_choices(1, 24);
  const auto expected = rank(rows_of("prompt_completion", choices));
  const auto scores = option_scores("prompt_completion", choices);
  std::set<std::string> chosen;
  for (const auto& [name, unused] : formats_of(choices[0].asked)) {
    const auto got = rank(rows_of(name, choices));
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].ranked, expected[i].ranked) << name << ", row " << i;
      EXPECT_EQ(got[i].output, expected[i].output) << name << ", row " << i;
      EXPECT_EQ(got[i].gold, choices[i].gold) << name << ", row " << i;
      chosen.insert(got[i].ranked);
    }
    EXPECT_EQ(option_scores(name, choices), scores) << name;
  }
  EXPECT_GT(chosen.size(), 3u);
}

TEST_P(Rankings, TheOrderOfOptionsDoesNotChangeTheChoice) {
  const auto choices = some_choices(2, 40);
  const auto expected = rank(rows_of("messages", choices));
  for (size_t by = 1; by < 5; ++by) {
    auto turned = choices;
    for (auto& choice : turned) choice.options = rotated(choice.options, by);
    const auto got = rank(rows_of("messages", turned));
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].ranked, expected[i].ranked) << "row " << i << " by " << by;
      EXPECT_EQ(got[i].extracted, expected[i].extracted) << "row " << i << " by " << by;
    }
  }
}

TEST_P(Rankings, TheRightOptionDoesNotChangeTheChoice) {
  auto choices = some_choices(3, 24);
  for (auto& choice : choices) choice.asked.answer = " it is " + choice.gold;
  const auto expected = rank(rows_of("alpaca", choices));
  for (size_t by = 1; by < 4; ++by) {
    for (auto& choice : choices) {
      choice.gold = rotated(choice.options, by)[0];
      choice.asked.answer = " it is " + choice.gold;
    }
    const auto got = rank(rows_of("alpaca", choices));
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].ranked, expected[i].ranked) << "row " << i;
  }
}

/// With weights near zero, all tokens are equally likely, so options with equally many tokens tie.
TEST_P(Rankings, TheFirstOptionWinsATie) {
  const auto even = testing::make_model(
      "olmoe", models::BaseDtype::kFloat32,
      {{"vocab_size", tokenizer().vocab_size()}, {"max_position_embeddings", 512}, {"initializer_range", 1e-30}});
  const std::vector<std::string> letters = {"B", "C", "D"};
  for (size_t by = 0; by < letters.size(); ++by) {
    const Choice choice{{"which?", "it is C"}, rotated(letters, by), "C"};
    const auto got = predict(data::Scoring::kChoice, {choice_row("alpaca", choice)}, *even);
    EXPECT_EQ(got[0].ranked, choice.options[0]);
  }
}

}  // namespace
}  // namespace evenkeel
