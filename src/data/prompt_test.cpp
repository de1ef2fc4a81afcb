#include "data/prompt.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "base/plain/files.h"
#include "base/testing.h"
#include "data/row_files.h"
#include "tokenizer/bpe_training.h"
#include "tokenizer/chat_template.h"

namespace evenkeel::data {
namespace {

const Row kRow{.instruction = "Is it so?\n\nAnswer format: true/false",
               .input = "",
               .output = "the correct answer is true",
               .answer = "true",
               .label = ""};

Row with_context() {
  Row row = kRow;
  row.input = "It is so.";
  return row;
}

TEST(Prompt, PaperTemplateIsByteExact) {
  const std::string expected =
      "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
      "\n"
      "### Instruction:\n"
      "Is it so?\n\nAnswer format: true/false\n"
      "\n"
      "### Response:\n";
  EXPECT_EQ(training_prompt(kRow, PromptTemplate::kPaper), expected);
  EXPECT_EQ(evaluation_prompt(kRow, PromptTemplate::kPaper), expected);
}

TEST(Prompt, PaperTemplateWithContextIsByteExact) {
  const std::string expected =
      "Below is an instruction that describes a task, paired with context that provides further information. "
      "Write a response that appropriately completes the request.\n"
      "\n"
      "### Instruction:\n"
      "Is it so?\n\nAnswer format: true/false\n"
      "\n"
      "### Context:\n"
      "It is so.\n"
      "\n"
      "### Response:\n";
  EXPECT_EQ(training_prompt(with_context(), PromptTemplate::kPaper), expected);
  EXPECT_EQ(evaluation_prompt(with_context(), PromptTemplate::kPaper), expected);
}

TEST(Prompt, LlmAdaptersTrainingIsByteExact) {
  EXPECT_EQ(training_prompt(kRow, PromptTemplate::kLlmAdapters),
            "Below is an instruction that describes a task. Write a response that appropriately completes the request. "
            " \n"
            "\n"
            "                ### Instruction:\n"
            "                Is it so?\n\nAnswer format: true/false\n"
            "                \n"
            "                ### Response:\n"
            "                ");
}

TEST(Prompt, LlmAdaptersEvaluationDiffersInTwoPlaces) {
  EXPECT_EQ(evaluation_prompt(kRow, PromptTemplate::kLlmAdapters),
            "Below is an instruction that describes a task. Write a response that appropriately completes the request. "
            "\n"
            "\n"
            "                ### Instruction:\n"
            "                Is it so?\n\nAnswer format: true/false\n"
            "\n"
            "                ### Response:\n"
            "                ");
}

TEST(Prompt, LlmAdaptersTrainingWithContextIsByteExact) {
  EXPECT_EQ(training_prompt(with_context(), PromptTemplate::kLlmAdapters),
            "Below is an instruction that describes a task, paired with an input that provides further context. "
            "Write a response that appropriately completes the request.  \n"
            "\n"
            "                ### Instruction:\n"
            "                Is it so?\n\nAnswer format: true/false\n"
            "                \n"
            "                ### Input:\n"
            "                It is so.\n"
            "                \n"
            "                ### Response:\n"
            "                ");
}

class TokenizeRows : public ::testing::Test {
 protected:
  static tokenizer::Tokenizer make_tokenizer() {
    const std::vector<std::string> texts = {training_prompt(kRow, PromptTemplate::kPaper) + kRow.output,
                                            "the correct answer is true or false, the correct answer is false"};
    return tokenizer::Tokenizer::load(
        testing::TemporaryFile(tokenizer::train_tokenizer(texts, {.vocab_size = 320})).path());
  }

  TokenizedRows tokenize(std::vector<Row> rows, const TokenizeOptions& options) const {
    return tokenize_rows(rows, tokenizer_, options);
  }
  int64_t prompt_length(PromptTemplate form) const {
    return static_cast<int64_t>(tokenizer_.encode(training_prompt(kRow, form), false).size());
  }
  std::string text_of(const Example& example, int64_t from) const {
    return tokenizer_.decode(std::span(example.ids).subspan(static_cast<size_t>(from)));
  }

  const tokenizer::Tokenizer tokenizer_ = make_tokenizer();
  static constexpr int64_t kEos = 0;  // the first special token of the trainer
};

TEST_F(TokenizeRows, MasksThePromptAndEndsWithEos) {
  const auto rows = tokenize({kRow}, {.cutoff = 1000, .eos = kEos});
  const auto& example = rows.examples.at(0);
  EXPECT_EQ(example.first_target, prompt_length(PromptTemplate::kPaper));
  EXPECT_EQ(text_of(example, example.first_target), "the correct answer is true<|endoftext|>");
  EXPECT_EQ(example.ids.back(), kEos);
  EXPECT_EQ(rows.cut, 0);
}

// The prompt ends in spaces. A tokenizer without tokens for runs of spaces merges the last one with the answer.
TEST_F(TokenizeRows, ATokenAcrossPromptAndAnswerIsATarget) {
  const auto rows = tokenize({kRow}, {.form = PromptTemplate::kLlmAdapters, .cutoff = 1000, .eos = kEos});
  const auto& example = rows.examples.at(0);
  EXPECT_EQ(example.first_target, prompt_length(PromptTemplate::kLlmAdapters) - 1);
  EXPECT_EQ(text_of(example, example.first_target), " the correct answer is true<|endoftext|>");
}

TEST_F(TokenizeRows, WithoutMaskEveryPositionIsATarget) {
  const auto rows = tokenize({kRow}, {.cutoff = 1000, .mask_prompt = false, .eos = kEos});
  EXPECT_EQ(rows.examples.at(0).first_target, 1);
  EXPECT_EQ(rows.examples.at(0).targets(), static_cast<int64_t>(rows.examples[0].ids.size()) - 1);
}

TEST_F(TokenizeRows, ATruncatedRowHasNoEos) {
  const int64_t prompt = prompt_length(PromptTemplate::kPaper);
  const auto rows = tokenize({kRow}, {.cutoff = prompt + 2, .eos = kEos});
  EXPECT_EQ(rows.cut, 1);
  EXPECT_EQ(rows.without_target, 0);
  EXPECT_EQ(rows.examples.at(0).targets(), 2);
  EXPECT_NE(rows.examples[0].ids.back(), kEos);
}

TEST_F(TokenizeRows, ARowOfExactlyTheCutoffGetsNoEos) {
  const auto whole = tokenize({kRow}, {.cutoff = 1000, .eos = kEos});
  const auto length = static_cast<int64_t>(whole.examples.at(0).ids.size()) - 1;
  const auto rows = tokenize({kRow}, {.cutoff = length, .eos = kEos});
  EXPECT_EQ(rows.cut, 0);
  EXPECT_EQ(static_cast<int64_t>(rows.examples.at(0).ids.size()), length);
  EXPECT_NE(rows.examples[0].ids.back(), kEos);
}

TEST_F(TokenizeRows, RowsWithoutTheirAnswerAreCountedAndDropped) {
  Row longer = kRow;
  longer.instruction += std::string(400, 'x');
  const auto rows =
      tokenize({longer, kRow, longer}, {.cutoff = prompt_length(PromptTemplate::kPaper) + 8, .eos = kEos});
  EXPECT_EQ(rows.cut, 2 + (rows.examples.at(0).ids.back() == kEos ? 0 : 1));
  EXPECT_EQ(rows.without_target, 2);
  EXPECT_EQ(rows.rows, std::vector<int64_t>{1});
}

TEST_F(TokenizeRows, ATruncatedPromptIsATargetWithoutMask) {
  const auto rows = tokenize({kRow}, {.cutoff = 9, .mask_prompt = false, .eos = kEos});
  EXPECT_EQ(rows.cut, 1);
  EXPECT_EQ(rows.examples.at(0).targets(), 8);
}

/// Returns a row with a long context that contains its answer.
Row long_row(bool placed = true) {
  Row row = kRow;
  for (int i = 0; i < 300; ++i)
    row.input += concat(i == 200 ? "the correct answer is true " : "", "word", i, i % 9 ? " " : "\n");
  if (placed) row.answer_at = static_cast<int64_t>(row.input.find(row.output));
  return row;
}

TEST_F(TokenizeRows, ALongContextIsReducedToAWindowAroundTheAnswer) {
  const auto row = long_row();
  for (const bool masked : {true, false}) {
    const TokenizeOptions options{.cutoff = 500, .mask_prompt = masked, .eos = kEos};
    const auto rows = tokenize({row, with_context()}, options);
    ASSERT_EQ(rows.examples.size(), 2u);
    EXPECT_EQ(rows.cut, 1);
    EXPECT_EQ(rows.windowed, 1);
    EXPECT_EQ(rows.without_target, 0);
    const auto& example = rows.examples[0];
    const auto text = text_of(example, 0), context = text.substr(text.find("### Context:"));
    EXPECT_LE(example.ids.size(), 500u);
    EXPECT_GT(example.ids.size(), 490u);
    EXPECT_NE(text.find("### Instruction:\n" + row.instruction + "\n\n### Context:\n"), std::string::npos) << text;
    EXPECT_LT(context.find(row.output), context.find("### Response:")) << text;
    EXPECT_TRUE(text.ends_with("\n\n### Response:\n" + row.output + "<|endoftext|>")) << text;
    EXPECT_TRUE(!masked || text_of(example, example.first_target) == row.output + "<|endoftext|>") << text;
  }
}

TEST_F(TokenizeRows, WithoutAnAnswerPositionTheContextIsTruncated) {
  const auto rows = tokenize({long_row(/*placed=*/false)}, {.cutoff = 500, .eos = kEos});
  EXPECT_NE(text_of(rows.examples.at(0), 0).find("### Context:\nword0"), std::string::npos);
  EXPECT_EQ(rows.windowed, 1);
}

/// Returns the row as a user's file has it.
Row row_of_file(const Row& row) {
  const Json json = {{"instruction", row.instruction}, {"input", row.input}, {"output", row.output}};
  return file_rows({.patterns = {testing::TemporaryFile(json.dump(), "rows.jsonl").path().string()}}).rows.at(0);
}

TEST_F(TokenizeRows, ALongContextOfAFileIsReducedToAWindowAroundTheOutput) {
  auto written = long_row(/*placed=*/false);
  written.output = " the correct answer is true\n";
  const auto rows = tokenize({row_of_file(written)}, {.cutoff = 500, .eos = kEos});
  EXPECT_EQ(rows.windowed, 1);
  const auto text = text_of(rows.examples.at(0), 0), context = text.substr(text.find("### Context:"));
  EXPECT_LT(context.find("the correct answer is true word"), context.find("### Response:")) << text;
  EXPECT_EQ(context.find("word0\n"), std::string::npos) << text;
  written.output = "it is false";
  const auto without = tokenize({row_of_file(written)}, {.cutoff = 500, .eos = kEos});
  EXPECT_NE(text_of(without.examples.at(0), 0).find("### Context:\nword0\n"), std::string::npos);
}

/// The output fits into the prompt once only.
TEST_F(TokenizeRows, ARowOfAFileIsNotDroppedForALongOutputOfItsContext) {
  auto row = long_row(/*placed=*/false);
  row.output = row.input.substr(row.input.find("word100 "), row.input.find("word160 ") - row.input.find("word100 "));
  const auto alone = std::ssize(tokenizer_.encode(training_prompt(kRow, PromptTemplate::kPaper) + row.output));
  const TokenizeOptions options{.cutoff = alone + 200, .eos = kEos};
  const auto rows = tokenize({row_of_file(row)}, options);
  EXPECT_EQ(rows.windowed, 1);
  EXPECT_EQ(rows.without_target, 0);
  EXPECT_NE(text_of(rows.examples.at(0), 0).find("### Context:\nword0\n"), std::string::npos);
  row.answer_at = static_cast<int64_t>(row.input.find(row.output));  // as a published file gives it
  EXPECT_EQ(tokenize({row}, options).without_target, 1);
}

TEST_F(TokenizeRows, ARowWhoseAnswerDoesNotFitIsDropped) {
  const auto rows = tokenize({long_row()}, {.cutoff = prompt_length(PromptTemplate::kPaper), .eos = kEos});
  EXPECT_EQ(rows.cut, 1);
  EXPECT_EQ(rows.windowed, 0);
  EXPECT_EQ(rows.without_target, 1);
}

TEST_F(TokenizeRows, AnEvaluationPromptKeepsQuestionAndStartOfContext) {
  const auto row = long_row();
  for (const auto form : {PromptTemplate::kPaper, PromptTemplate::kLlmAdapters}) {
    const Prompts prompts(tokenizer_, form);
    const auto fitted = prompts.fit_context(row, 400);
    EXPECT_TRUE(row.input.starts_with(fitted.input));
    EXPECT_EQ(fitted.instruction, row.instruction);
    const auto length = tokenizer_.encode(evaluation_prompt(fitted, form), false).size();
    EXPECT_LE(length, 400u);
    EXPECT_GT(length, 390u);
    EXPECT_EQ(prompts.fit_context(row, 10000).input, row.input);
    EXPECT_THROW(prompts.fit_context(row, 30), Error);
    EXPECT_EQ(prompts.fit_context(kRow, 3).instruction, kRow.instruction);  // nothing to cut
  }
}

/// Returns rows whose contexts are one word: a text of a script without spaces, and a word of many letters.
std::vector<Row> rows_of_one_word() {
  Row tokyo{.instruction = "首都は？", .input = "", .output = "東京", .answer = "東京", .label = ""}, letters = kRow;
  for (int i = 0; i < 60; ++i) tokyo.input += "東京は日本の首都です。";
  letters.input = std::string(5000, 'x');
  return {tokyo, letters};
}

TEST_F(TokenizeRows, AContextWithoutSpacesIsReducedInTraining) {
  for (const auto& row : rows_of_one_word()) {
    const auto rows = tokenize({row}, {.cutoff = 500, .eos = kEos});
    EXPECT_EQ(rows.windowed, 1);
    EXPECT_EQ(rows.without_target, 0);
    const auto& example = rows.examples.at(0);
    EXPECT_LE(example.ids.size(), 500u);
    EXPECT_GT(example.ids.size(), 490u);
    EXPECT_EQ(text_of(example, example.first_target), row.output + "<|endoftext|>");
  }
}

TEST_F(TokenizeRows, AContextWithoutSpacesIsReducedInEvaluation) {
  const Prompts prompts(tokenizer_, PromptTemplate::kPaper);
  for (const auto& row : rows_of_one_word()) {
    const auto fitted = prompts.fit_context(row, 400);
    EXPECT_TRUE(row.input.starts_with(fitted.input));
    const auto length = prompts.encode(prompts.evaluation_prompt(fitted)).size();
    EXPECT_LE(length, 400u);
    EXPECT_GT(length, 390u);
    const auto says = testing::refusal([&] { prompts.fit_context(row, 30); });
    EXPECT_NE(says.find("even with the first word or character of its context alone"), std::string::npos) << says;
    EXPECT_EQ(says.find('\n'), std::string::npos) << says;
  }
}

TEST_F(TokenizeRows, RejectsATooSmallCutoff) { EXPECT_THROW(tokenize({kRow}, {.cutoff = 1}), Error); }

/// A tokenizer with a chat template: turns in brackets, and answers end with the first special token.
class ChatRows : public ::testing::Test {
 protected:
  static constexpr std::string_view kTurns =
      "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
      "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}";

  tokenizer::Tokenizer with_template(std::string_view source, std::string_view eos = "<|endoftext|>") {
    const std::vector<std::string> texts = {"[user] what is it [assistant] it is so"};
    write_file_atomic(folder_.path() / "tokenizer.json", tokenizer::train_tokenizer(texts, {.vocab_size = 300}));
    write_file_atomic(folder_.path() / "chat_template.jinja", source);
    write_file_atomic(folder_.path() / "tokenizer_config.json", concat("{\"eos_token\": \"", eos, "\"}"));
    return tokenizer::Tokenizer::of_model(folder_.path());
  }

  /// Returns the targets of a row as text, with "|" between answers, and whether eos was appended.
  static std::string targets(const tokenizer::Tokenizer& tokenizer, const Row& row,
                             TokenizeOptions options = {.cutoff = 1000}) {
    options.form = PromptTemplate::kChat;
    const auto rows = tokenize_rows(std::array{row}, tokenizer, options);
    if (rows.examples.empty()) return "none";
    const auto& example = rows.examples[0];
    std::string text;
    int64_t from = example.first_target;
    const auto add = [&](int64_t to) {
      text +=
          tokenizer.decode(std::span(example.ids).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
    };
    for (const auto& gap : example.between) {
      add(gap.begin);
      text += gap.end < static_cast<int64_t>(example.ids.size()) ? "|" : "";
      from = gap.end;
    }
    add(static_cast<int64_t>(example.ids.size()));
    return text;
  }

  static Row conversation() {
    Row row;
    row.turns = {{"system", "be kind"}, {"user", "what"}, {"assistant", "it"}, {"user", "is"}, {"assistant", "so"}};
    return row;
  }

  testing::TemporaryFolder folder_;
};

/// A token that crosses the border of an answer belongs to it. " it" is one token here, " so" is not.
TEST_F(ChatRows, EveryAnswerWithItsEndOfTurnIsATarget) {
  const auto tokenizer = with_template(kTurns);
  EXPECT_EQ(targets(tokenizer, conversation()), " it<|endoftext|>|so<|endoftext|>");
  EXPECT_EQ(targets(tokenizer, kRow), kRow.output + "<|endoftext|>");
  EXPECT_EQ(targets(tokenizer, conversation(), {.cutoff = 1000, .eos = 0}), " it<|endoftext|>|so<|endoftext|>");
}

TEST_F(ChatRows, EosIsAppendedIfTheTemplateHasNoEndOfTurn) {
  const auto tokenizer = with_template(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}");
  EXPECT_EQ(targets(tokenizer, kRow, {.cutoff = 1000, .eos = 0}), kRow.output + "\n<|endoftext|>");
}

TEST_F(ChatRows, ATruncatedConversationKeepsAnswersThatFit) {
  const auto tokenizer = with_template(kTurns);
  const auto whole =
      tokenize_rows(std::array{conversation()}, tokenizer, {.form = PromptTemplate::kChat, .cutoff = 1000});
  const auto second = whole.examples.at(0).between.at(0).end;
  EXPECT_EQ(targets(tokenizer, conversation(), {.cutoff = second}), " it<|endoftext|>");
  EXPECT_EQ(targets(tokenizer, conversation(), {.cutoff = 4}), "none");
}

TEST_F(ChatRows, GenerationTagsMarkTheAnswers) {
  const auto tokenizer = with_template(
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{{ eos_token }}{% else %}"
      "{{ m.content }}{% endif %}\n{% endfor %}");
  EXPECT_EQ(targets(tokenizer, conversation()), " it|so");
}

TEST_F(ChatRows, OnlyTheLastAnswerIsATargetIfEarlierOnesAreRewritten) {
  const auto tokenizer = with_template(
      "{% for m in messages %}[{{ m.role }}] {{ m.content if loop.last or m.role == 'user' "
      "else '...' }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}");
  EXPECT_EQ(targets(tokenizer, conversation()), "so<|endoftext|>");
  const auto rows =
      tokenize_rows(std::array{conversation(), kRow}, tokenizer, {.form = PromptTemplate::kChat, .cutoff = 1000});
  EXPECT_EQ(rows.last_only, 1);
}

TEST_F(ChatRows, TemplateErrorsNameTheRow) {
  const auto crooked =
      with_template("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}({% endif %}");
  const auto refusal = [&](const tokenizer::Tokenizer& tokenizer) {
    return testing::refusal([&] { targets(tokenizer, conversation()); });
  };
  EXPECT_NE(refusal(crooked).find("training row 0: "), std::string::npos) << refusal(crooked);
  EXPECT_NE(refusal(crooked).find("{% generation %}"), std::string::npos);
  const auto strict = with_template("\n{{ raise_exception('no system') }}");
  EXPECT_NE(refusal(strict).find("chat_template.jinja line 2: the chat template refuses: no system"), std::string::npos)
      << refusal(strict);
}

TEST_F(ChatRows, ARowThatItsTemplateRefusesIsLeftOutIfItIsNotRequired) {
  const auto tokenizer = with_template(
      concat("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", kTurns));
  std::vector<Row> rows{kRow, conversation(), kRow, conversation()};
  for (auto& row : rows) row.is_required = false;
  rows[1].origin = "rows.jsonl:2";
  const TokenizeOptions options{.form = PromptTemplate::kChat, .cutoff = 1000};
  ::testing::internal::CaptureStderr();
  const auto tokenized = tokenize_rows(rows, tokenizer, options);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "who uses the rows says what is left out";
  EXPECT_EQ(tokenized.rows, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(tokenized.left_out, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(tokenized.without_target + tokenized.cut + tokenized.last_only, 0);
  const std::string_view note = "2 of 4 rows cannot be tokenised and are left out; the first: rows.jsonl:2: ";
  EXPECT_TRUE(tokenized.note.starts_with(note)) << tokenized.note;
  EXPECT_NE(tokenized.note.find("no system"), std::string::npos) << tokenized.note;
  EXPECT_TRUE(tokenized.first_fault.starts_with("rows.jsonl:2: ")) << tokenized.first_fault;
  EXPECT_TRUE(tokenized.note.ends_with(tokenized.first_fault)) << tokenized.note;
  rows[3].is_required = true;
  EXPECT_NE(testing::refusal([&] { tokenize_rows(rows, tokenizer, options); }).find("training row 3: "),
            std::string::npos);
}

TEST_F(ChatRows, SaysWhyThereIsNoExample) {
  const auto tokenizer = with_template(
      concat("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", kTurns));
  const auto why = [&](std::vector<Row> rows) {
    for (auto& row : rows) row.is_required = false;
    const auto none = tokenize_rows(rows, tokenizer, {.form = PromptTemplate::kChat, .cutoff = 3});
    EXPECT_TRUE(none.examples.empty());
    return why_no_example(none, "3 tokens");
  };
  EXPECT_EQ(why({kRow, kRow}), "2 of 2 rows have no token of an answer within 3 tokens");
  const auto refused = why({conversation()}), both = why({kRow, conversation(), kRow});
  EXPECT_TRUE(refused.starts_with("1 of 1 rows cannot be tokenised and are left out; the first: ")) << refused;
  EXPECT_EQ(refused.find("within"), std::string::npos) << refused;
  EXPECT_TRUE(both.starts_with("1 of 3 rows cannot be tokenised and are left out; the first: ")) << both;
  EXPECT_TRUE(both.ends_with("no system; 2 of 3 rows have no token of an answer within 3 tokens")) << both;
}

TEST_F(ChatRows, PromptsEndWithTheStartOfAnAnswer) {
  const auto tokenizer = with_template(kTurns, "<|padding|>");
  const Prompts prompts(tokenizer, PromptTemplate::kChat);
  EXPECT_EQ(prompts.evaluation_prompt(conversation()),
            "[system] be kind\n[user] what\n[assistant] it<|padding|>\n[user] is\n[assistant] ");
  EXPECT_EQ(prompts.evaluation_prompt(with_context()), "[user] " + kRow.instruction + "\n\nIt is so.\n[assistant] ");
  EXPECT_EQ(prompts.stops(), std::vector<int64_t>{1});
  EXPECT_TRUE(Prompts(tokenizer, PromptTemplate::kPaper).stops().empty());
}

/// Special tokens whose names are words that a template, a question or an answer may contain too.
TEST_F(ChatRows, EndOfTurnIsTheTextAfterTheAnswer) {
  for (const std::string end : {"<|answer_end|>", "</answer>", "<|answer|>", "<|first|>", "<|zwei|>"}) {
    auto json = parse_json<OrderedJson>(
        tokenizer::train_tokenizer(std::vector<std::string>{"answer it is"}, {.vocab_size = 300}), "");
    auto token = json["added_tokens"][0];
    token["id"] = 300, token["content"] = end, token["special"] = true;
    json["added_tokens"].push_back(token);
    write_file_atomic(folder_.path() / "tokenizer.json", json.dump());
    write_file_atomic(folder_.path() / "tokenizer_config.json", "{}");
    write_file_atomic(
        folder_.path() / "chat_template.jinja",
        concat("{% for m in messages %}answer: {{ m.content }}{% if m.role == 'assistant' %}", end,
               " first answer{% endif %}\n{% endfor %}{% if add_generation_prompt %}answer: {% endif %}"));
    const auto tokenizer = tokenizer::Tokenizer::of_model(folder_.path());
    EXPECT_EQ(Prompts(tokenizer, PromptTemplate::kChat).stops(), std::vector{*tokenizer.token_to_id(end)}) << end;
  }
}

/// A special token in the text of an answer is not the template's end of turn.
TEST_F(ChatRows, EosIsAppendedToAnAnswerThatContainsItsText) {
  const auto tokenizer = with_template(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}");
  Row row;
  row.turns = {{"user", "what"}, {"assistant", "<|endoftext|> ends"}};
  EXPECT_EQ(targets(tokenizer, row, {.cutoff = 1000, .eos = 0}), "<|endoftext|> ends\n<|endoftext|>");
}

Turn told(std::string_view json) {
  Turn turn{"assistant", ""};
  const auto parsed = parse_json<OrderedJson>(json, "");
  turn.role = parsed.at("role");
  if (parsed.at("content").is_string()) turn.content = parsed.at("content");
  turn.message = tokenizer::chat_value(parsed, "");
  return turn;
}

TEST_F(ChatRows, EveryKeyReachesTheTemplate) {
  const auto tokenizer = with_template(
      "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ m.name or m.role }}: "
      "{% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}{{ m.content }}"
      "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}");
  Row row;
  row.turns = {told(R"({"role": "user", "content": "what", "name": "Bob"})"),
               told(R"({"role": "assistant", "content": "it", "reasoning_content": "hm"})")};
  row.variables = {{"tools", tokenizer::chat_value(parse_json<OrderedJson>(R"([{"z": 1, "a": true}])", ""), "")}};
  EXPECT_EQ(Prompts(tokenizer, PromptTemplate::kChat).transcript(row).text,
            "[{\"z\": 1, \"a\": true}]\nBob: what\nassistant: <hm>it<|endoftext|>\n");
  EXPECT_EQ(targets(tokenizer, row), "<hm>it<|endoftext|>");
}

TEST_F(ChatRows, RejectsDroppedMessagesAndPrintedLists) {
  const auto tokenizer = with_template(
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}[{{ m.content }}]{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[{% endif %}");
  Row row;
  row.turns = {{"user", "what"}, {"tool", "7"}, {"assistant", "it"}};
  EXPECT_NE(testing::refusal([&] { targets(tokenizer, row); }).find("writes nothing of a message of the role \"tool\""),
            std::string::npos);
  row.turns[1] = told(R"({"role": "user", "content": [{"type": "text", "text": "a"}]})");
  EXPECT_NE(testing::refusal([&] { targets(tokenizer, row); }).find("writes a content of parts as a list"),
            std::string::npos);
}

TEST_F(ChatRows, RolesAreCheckedWithAllKeysOfTheirMessages) {
  const auto tokenizer = with_template(
      "{% for m in messages %}{% if m.role == 'tool' and not m.tool_call_id %}{{ raise_exception('of no call') }}"
      "{% endif %}[{{ m.role }}]{{ m.content if m.content is string else m.content[0].text }}"
      "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}");
  Row row;
  row.turns = {{"user", "what"}, told(R"({"role": "tool", "content": "7", "tool_call_id": "c1"})"), {"assistant", "x"}};
  EXPECT_EQ(targets(tokenizer, row), "x<|endoftext|>");
  row.turns[1] = told(R"({"role": "tool", "content": [{"type": "text", "text": "7"}], "tool_call_id": "c1"})");
  row.turns[1].content = "7";
  EXPECT_EQ(targets(tokenizer, row), "x<|endoftext|>");
  row.turns[1] = {"tool", "7"};
  EXPECT_NE(testing::refusal([&] { targets(tokenizer, row); }).find("of no call"), std::string::npos);
}

TEST_F(ChatRows, AnswersOfWeightZeroOrInAPromptAreNoTargets) {
  auto row = conversation();
  row.turns[2].is_target = false;
  EXPECT_EQ(targets(with_template(kTurns), row), "so<|endoftext|>");
  EXPECT_EQ(
      targets(with_template("{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}"
                            "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"),
              row),
      "so");
}

TEST_F(ChatRows, ATemplateFileReplacesTheTemplateOfTheModel) {
  auto tokenizer = with_template(kTurns);
  const testing::TemporaryFile other("<{{ messages[0].content }}>{{ eos_token }}"), broken("{% if %}");
  tokenizer.use_chat_template(other.path());
  Row row;
  row.turns = {{"user", "what"}};
  EXPECT_EQ(Prompts(tokenizer, PromptTemplate::kChat).conversation_text(row, false), "<what><|endoftext|>");
  EXPECT_NE(testing::refusal([&] { tokenizer.use_chat_template(broken.path()); }).find("line 1"), std::string::npos);
}

TEST_F(ChatRows, OtherTemplatesAcceptConversationsWithOneAnswer) {
  const auto tokenizer = with_template(kTurns);
  Row row;
  row.turns = {{"system", "be kind"}, {"user", "what"}, {"assistant", "it"}};
  EXPECT_EQ(training_prompt(row, PromptTemplate::kPlain), "be kind\n\nwhat");
  const auto text = Prompts(tokenizer, PromptTemplate::kPaper).transcript(row).text;
  EXPECT_NE(text.find("### Instruction:\nbe kind\n\nwhat\n\n### Response:\nit"), std::string::npos) << text;
  EXPECT_THROW(training_prompt(conversation(), PromptTemplate::kPaper), Error);
}

TEST_F(ChatRows, PlainTemplateConcatenatesPromptAndAnswer) {
  const auto tokenizer = with_template(kTurns);
  const Row row{.instruction = "it is", .input = "", .output = " so", .answer = "", .label = ""};
  const auto rows =
      tokenize_rows(std::array{row}, tokenizer, {.form = PromptTemplate::kPlain, .cutoff = 1000, .eos = 0});
  EXPECT_EQ(tokenizer.decode(rows.examples.at(0).ids), "it is so<|endoftext|>");
}

}  // namespace
}  // namespace evenkeel::data
