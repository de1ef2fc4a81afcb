#include "scoring/prepared_task.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "base/plain/json.h"
#include "base/testing.h"
#include "data/row_files.h"
#include "models/testing.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::scoring {
namespace {

constexpr int64_t kEos = 0;  // the first special token of the trainer

/// Answers that begin where the prompt ends.
constexpr std::string_view kDirect =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
/// Answers after a blank, as in Mistral's template.
constexpr std::string_view kAfterABlank =
    "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% else %} {{ m.content }}{{ eos_token }}"
    "{% endif %}{% endfor %}";
/// Answers after an empty thinking, as in Qwen3's template, and line ends after them.
constexpr std::string_view kAfterThinking =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
/// Answers without the blanks around them, as in Llama 3's template.
constexpr std::string_view kTrimmed =
    "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
/// Conversations that do not begin with their prompts. Training refuses them without {% generation %}.
constexpr std::string_view kCrooked =
    "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}({% endif %}";
/// Writes nothing of an answer.
constexpr std::string_view kSilent =
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
/// Refuses messages of the system.
constexpr std::string_view kWithoutSystem =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

data::TaskInfo task_of(data::Scoring scoring) {
  return {.name = "own", .file = "", .answers = {}, .source = "", .scoring = scoring, .family = "files"};
}

/// The question and its answer as a row of texts and as a conversation. The answer is also the first option.
std::vector<data::Row> rows_of(const std::string& question, const std::string& answer, const std::string& option) {
  data::Row texts{.instruction = question,
                  .input = "",
                  .output = answer,
                  .answer = option,
                  .options = {option, "grey"},
                  .references = {answer}};
  auto turns = texts;
  turns.instruction.clear();
  turns.turns = {{"user", question}, {"assistant", answer}};
  return {texts, turns};
}

/// A tokenizer of which every character is a token, with a chat template.
class PreparedTasks : public ::testing::Test {
 protected:
  tokenizer::Tokenizer with_template(std::string_view source) const {
    write_file_atomic(folder_.path() / "tokenizer.json", tokenizer::train_tokenizer({}, {.vocab_size = 258}));
    write_file_atomic(folder_.path() / "chat_template.jinja", source);
    write_file_atomic(folder_.path() / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    return tokenizer::Tokenizer::of_model(folder_.path());
  }

  PreparedTask prepared(data::Scoring scoring, const std::vector<data::Row>& rows,
                        const tokenizer::Tokenizer& tokenizer,
                        data::PromptTemplate form = data::PromptTemplate::kChat) const {
    return PreparedTask(task_of(scoring), {rows}, tokenizer, model_->spec(), {.form = form, .max_new_tokens = 40});
  }

  /// Expects that prompt and first answer of every row are the tokens of training up to the end of sequence.
  void expect_trained(const std::vector<data::Row>& rows, const tokenizer::Tokenizer& tokenizer,
                      data::PromptTemplate form) const {
    const auto trained = data::tokenize_rows(rows, tokenizer, {.form = form, .cutoff = 400, .eos = kEos});
    ASSERT_EQ(trained.examples.size(), rows.size());
    for (const auto scoring : {data::Scoring::kF1, data::Scoring::kExact, data::Scoring::kChoice}) {
      const auto task = prepared(scoring, rows, tokenizer, form);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto& example = trained.examples[i];
        auto ids = task.prompt(i);
        EXPECT_EQ(std::ssize(ids), example.first_target);
        const auto answers = task.answer_tokens(i);
        ASSERT_FALSE(answers.empty());
        ids.insert(ids.end(), answers[0].begin(), answers[0].end());
        ASSERT_LT(ids.size(), example.ids.size());
        EXPECT_EQ(example.ids[ids.size()], kEos);
        EXPECT_EQ(tokenizer.decode(ids), tokenizer.decode(std::span(example.ids).first(ids.size())))
            << config::name_of(scoring) << ", row " << i;
      }
    }
  }

  const testing::TemporaryFolder folder_;
  const std::unique_ptr<models::CausalLm> model_ = testing::random_model(31, 258);
};

TEST_F(PreparedTasks, AnAnswerIsScoredByTheTokensThatItIsTrainedBy) {
  const std::string question = "the colour of the wolf is";
  const auto plain = rows_of(question, " red", "red");
  expect_trained({plain[0]}, with_template(kDirect), data::PromptTemplate::kPlain);
  expect_trained({plain[0]}, with_template(kDirect), data::PromptTemplate::kPaper);
  for (const auto source : {kDirect, kAfterABlank, kAfterThinking, kTrimmed})
    for (const std::string answer : {"red", " red", "\n it is red"}) {
      auto rows = rows_of(question, answer, "red");
      SCOPED_TRACE(concat(source, " with \"", answer, "\""));
      expect_trained(rows, with_template(source), data::PromptTemplate::kChat);
    }
}

TEST_F(PreparedTasks, OtherReferencesThanTheOwnAnswerAreScoredWithoutBlanks) {
  auto rows = rows_of("which?", " red", "red");
  for (auto& row : rows) row.references = {" \n", " grey ", " red"};
  const auto tokenizer = with_template(kAfterABlank);
  const auto task = prepared(data::Scoring::kF1, rows, tokenizer);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(tokenizer.decode(task.answer_tokens(i).at(0)), " grey");
}

TEST_F(PreparedTasks, TheTextBeforeAnAnswerIsWhatTheTemplateWritesThere) {
  const auto rows = rows_of("which?", "red", "red");
  const auto before = [&](std::string_view source) {
    return prepared(data::Scoring::kF1, rows, with_template(source)).before_answer(1);
  };
  EXPECT_EQ(before(kDirect), "");
  EXPECT_EQ(before(kTrimmed), "");
  EXPECT_EQ(before(kAfterABlank), " ");
  EXPECT_EQ(before(kAfterThinking), "<think>\n\n</think>\n\n");
  for (const auto source : {kCrooked, kSilent}) {
    EXPECT_EQ(before(source), "");
    const auto tokenizer = with_template(source);
    EXPECT_EQ(tokenizer.decode(prepared(data::Scoring::kChoice, rows, tokenizer).answer_tokens(1).at(1)), "grey");
  }
}

/// The reasoning of the row's own answer may tell which option is right.
TEST_F(PreparedTasks, OptionsAreScoredWithoutTheReasoningOfTheRow) {
  auto row = rows_of("which?", "red", "red").at(1);
  row.turns.back().message = jinja::Value::dict({{"role", jinja::Value::string("assistant")},
                                                 {"content", jinja::Value::string("red")},
                                                 {"reasoning_content", jinja::Value::string("It is red.")}});
  const auto tokenizer = with_template(
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}({{ m.reasoning_content }}){% endif %}"
      "{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  const auto tokens = prepared(data::Scoring::kChoice, {row}, tokenizer).answer_tokens(0);
  EXPECT_EQ(tokenizer.decode(tokens.at(0)), "()red");
  EXPECT_EQ(tokenizer.decode(tokens.at(1)), "()grey");
}

TEST_F(PreparedTasks, RowsThatTheTemplateRefusesAreLeftOutOfLikelihoods) {
  auto rows = rows_of("which?", "red", "red");
  rows.insert(rows.begin() + 1, rows[1]);
  rows[1].turns.insert(rows[1].turns.begin(), {"system", "Be brief."});
  for (auto& row : rows) row.is_required = false;
  const auto tokenizer = with_template(kWithoutSystem);
  const auto task = prepared(data::Scoring::kNll, rows, tokenizer);
  EXPECT_EQ(task.left_out(), 1);
  EXPECT_NE(task.note().find("1 of 3 rows cannot be tokenised and are left out; the first: "), std::string::npos);
  EXPECT_NE(task.note().find("no system"), std::string::npos) << task.note();
  EXPECT_EQ(task.rows().size(), 2u);
  EXPECT_EQ(task.number(0), 0);
  EXPECT_EQ(task.number(1), 2);
  EXPECT_EQ(task.examples().rows, (std::vector<int64_t>{0, 1}));
  const auto refusal = [&](const std::vector<data::Row>& some) {
    return testing::refusal([&] { prepared(data::Scoring::kNll, some, tokenizer); });
  };
  EXPECT_NE(refusal({rows[1]}).find("task own: 1 of 1 rows cannot be tokenised"), std::string::npos);
  rows[1].is_required = true;
  EXPECT_NE(refusal(rows).find("no system"), std::string::npos);
}

TEST_F(PreparedTasks, RowsThatLoseTheirAnswerAreNamedBesideThoseThatTheTemplateRefuses) {
  auto rows = rows_of(std::string(600, 'q'), "red", "red");
  rows[1].turns.insert(rows[1].turns.begin(), {"system", "Be brief."});
  for (auto& row : rows) row.is_required = false;
  const auto tokenizer = with_template(kWithoutSystem);
  const auto said = testing::refusal([&] { prepared(data::Scoring::kNll, rows, tokenizer); });
  EXPECT_NE(said.find("task own: 1 of 2 rows cannot be tokenised and are left out; the first: "), std::string::npos);
  EXPECT_NE(said.find("no system; 1 of 2 rows have no token of an answer within "), std::string::npos) << said;
}

TEST_F(PreparedTasks, TheAnswerDoesNotDecideWhatALikelihoodKeepsOfAContext) {
  std::string context;
  for (int i = 0; i < 30; ++i) context += "grey ";
  std::string lines;
  for (const auto* word : {"red", "odd"})
    lines += Json{{"instruction", "Which?"}, {"input", context + word + " today"}, {"output", "red"}}.dump() + "\n";
  const testing::TemporaryFile file(lines, "rows.jsonl");
  const auto set = data::file_rows({.patterns = {file.path().string()}});
  ASSERT_GT(set.rows[0].answer_at, 0);
  ASSERT_EQ(set.rows[1].answer_at, -1);
  const auto tokenizer = with_template(kDirect);
  const PreparedTask task(task_of(data::Scoring::kNll), set, tokenizer, model_->spec(),
                          {.form = data::PromptTemplate::kPlain, .cutoff = 60});
  const auto& examples = task.examples().examples;
  ASSERT_EQ(examples.size(), 2u);
  EXPECT_EQ(task.examples().windowed, 2);
  EXPECT_EQ(examples[0].ids, examples[1].ids);
  EXPECT_TRUE(tokenizer.decode(examples[0].ids).starts_with("Which?\n\ngrey grey"))
      << tokenizer.decode(examples[0].ids);
}

}  // namespace
}  // namespace evenkeel::scoring
