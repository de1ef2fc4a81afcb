#include "scoring/answering.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/plain/json.h"
#include "base/testing.h"
#include "models/testing.h"
#include "nn/engines/engine_of.h"
#include "scoring/generation.h"
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

/// Returns a model on the test device whose vocabulary is that of characters().
std::unique_ptr<models::CausalLm> model_on_test_device() {
  models::BaseStorage storage(models::BaseDtype::kFloat32);
  storage.engine = nn::EngineKind::kAten;
  storage.device = testing::test_device();
  return testing::make_model("olmoe", storage, {{"vocab_size", 258}, {"max_position_embeddings", 512}});
}

TEST(AnswerRowsTestDevice, ABatchAndThePlacesOfEarlierOnesFitIntoTheCache) {
  const auto model = model_on_test_device();
  const auto task = choice_of({"yes", "no"});
  const std::vector<data::Row> rows(
      12, data::Row{.instruction = "Is it so?", .input = "", .output = "yes", .answer = "yes"});
  const auto graphs = nn::engine_of(nn::EngineKind::kAten).graphs();
  const models::ForwardOptions forward{.compute = {.engine = nn::EngineKind::kAten}, .graphs = graphs.get()};
  const auto shape = kv_shape(*model, nn::KvType::kExact, forward.compute);
  EvaluationOptions options{.max_new_tokens = 32};  // no answer is longer
  const int64_t length = std::ssize(PreparedTask(task, {rows}, characters(), model->spec(), options).prompt(0));
  const PromptSizes five{.count = 5, .tokens = 5 * length, .longest = length};
  const int64_t most =
      cached_tokens(five, options.max_new_tokens, 1, shape.device, forward.compute.engine) * shape.token_bytes();
  options.cache_gib = static_cast<double>(most) / 0x1p30;
  graphs->arena().memory(shape, 64, 256);  // as an evaluation of other rows leaves it
  ASSERT_GT(graphs->arena().bytes(), most);
  std::vector<int64_t> done;
  testing::evaluate_task(*model, characters(), forward, task, {rows}, options, nullptr,
                         [&](int64_t rows_done, int64_t) { done.push_back(rows_done); });
  EXPECT_EQ(done, (std::vector<int64_t>{5, 10, 12}));
  EXPECT_LE(graphs->arena().bytes() + 5 * length * shape.token_bytes(), most);
}

/// Returns the characters as tokens of a model in `folder`, with a chat template that writes "<so> " before an answer.
tokenizer::Tokenizer characters_after_so(const fs::path& folder) {
  write_file_atomic(folder / "tokenizer.json", tokenizer::train_tokenizer({}, {.vocab_size = 258}));
  write_file_atomic(folder / "chat_template.jinja",
                    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{{ '<so> ' }}{% endif %}"
                    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
  write_file_atomic(folder / "tokenizer_config.json", "{}");
  return tokenizer::Tokenizer::of_model(folder);
}

TEST(AnswerRows, AnOutputIsReadAfterWhatTheTemplateWritesBeforeAnAnswer) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = characters_after_so(folder.path());
  const std::vector<data::Row> rows{
      {.instruction = "Who?", .input = "", .output = "me!", .answer = "me!", .references = {"me!"}}};
  const auto output = [&](const std::string& text, int64_t tokens) {
    auto task = choice_of({});
    task.scoring = data::Scoring::kExact;
    std::vector<Prediction> predictions;
    testing::evaluate_task(*model_that_writes(text), tokenizer, {}, task, {rows},
                           {.form = data::PromptTemplate::kChat, .max_new_tokens = tokens}, &predictions);
    return predictions.at(0).output;
  };
  EXPECT_EQ(output("<so> me!", 8), "me!");
  EXPECT_EQ(output("<so> me!", 5), "") << "it ends before the answer";
  EXPECT_EQ(output("<s me!", 6), "<s me!");
  EXPECT_EQ(output("me!", 3), "me!");
}

TEST(AnswerRows, AnOutputDoesNotEndWithinWhatTheTemplateWritesBeforeAnAnswer) {
  const testing::TemporaryFolder folder;
  const auto tokenizer = characters_after_so(folder.path());
  const auto model = model_that_writes("<so> me!");
  const std::vector<data::Row> rows{{.instruction = "Who?", .input = "", .output = "me", .answer = "me"}};
  const EvaluationOptions options{.form = data::PromptTemplate::kChat, .max_new_tokens = 12};
  std::vector<Prediction> whole;
  const auto task = choice_of({"so", "me"});
  EXPECT_EQ(testing::evaluate_task(*model, tokenizer, {}, task, {rows}, options, &whole).accuracy, 1);
  EXPECT_EQ(testing::evaluate_task(*model, tokenizer, {}, task, {rows}, options).accuracy, 1);
}

/// A row whose first option is the answer.
data::Row row_of(const std::string& question, const std::string& context, const std::vector<std::string>& options) {
  return {.instruction = question, .input = context, .output = options[0], .answer = options[0], .options = options};
}

/// Two contexts do not fit into the 512 positions. The second row, and the third one with such a context, have an
/// option that is longer than what is generated.
std::vector<data::Row> rows_with_long_options() {
  std::string context;
  for (int word = 0; word < 200; ++word) context += "abc ";
  return {row_of("Which?", context, {"ab", "cd"}), row_of("Which?", "", {"ab", std::string(45, 'y')}),
          row_of("Which one?", context, {"ab", std::string(60, 'y')})};
}

TEST(AnswerRows, ALongAnswerTakesRoomFromItsOwnRowAlone) {
  const auto model = testing::random_model(31, 258);
  std::vector<std::vector<Prediction>> all;
  for (const int64_t batch : {1, 3}) {
    const EvaluationOptions options{.max_new_tokens = 4, .batch_size = batch};
    testing::evaluate_task(*model, characters(), {}, choice_of({}), {rows_with_long_options()}, options,
                           &all.emplace_back());
    ASSERT_EQ(all.back().size(), 3u);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[1][i].output, all[0][i].output);
    EXPECT_EQ(all[1][i].ranked, all[0][i].ranked);
    EXPECT_NEAR(all[1][i].nll, all[0][i].nll, 1e-4);
  }
}

TEST(PreparedTask, AContextLeavesRoomForTheLongestAnswerOfItsRow) {
  const auto model = testing::random_model(31, 258);
  const PreparedTask task(choice_of({}), {rows_with_long_options()}, characters(), model->spec(),
                          {.max_new_tokens = 4});
  const auto length = [&](size_t row) { return std::ssize(task.prompt(row)); };
  EXPECT_TRUE(task.is_context_cut(0) && !task.is_context_cut(1) && task.is_context_cut(2));
  EXPECT_TRUE(length(0) <= 512 - 4 && length(0) > 512 - 14) << length(0);
  EXPECT_TRUE(length(2) <= 512 - 60 && length(2) > 512 - 70) << length(2);
  const auto too_long = row_of(std::string(300, 'q'), "", {"ab", std::string(100, 'y')});
  const auto said = testing::refusal(
      [&] { PreparedTask(choice_of({}), {{too_long}}, characters(), model->spec(), {.max_new_tokens = 4}); });
  EXPECT_NE(said.find("row 0: the prompt has "), std::string::npos) << said;
  EXPECT_NE(said.find("more than the 412 that the model's positions leave beside its longest answer"),
            std::string::npos)
      << said;
}

/// Returns a tokenizer in which characters outside ASCII are errors.
tokenizer::Tokenizer ascii() {
  Json pieces = Json::array({Json::array({"\n", -1.0})});
  for (char character = ' '; character <= '~'; ++character)
    pieces.push_back(Json::array({std::string(1, character), -1.0}));
  const Json content{{"version", "1.0"}, {"model", {{"type", "Unigram"}, {"unk_id", nullptr}, {"vocab", pieces}}}};
  return tokenizer::Tokenizer::load(testing::TemporaryFile(content.dump()).path());
}

TEST(PreparedTask, ARowWhoseAnswerCannotBeTokenisedIsLeftOutWhole) {
  const auto model = testing::random_model(31, 258);
  const auto tokenizer = ascii();
  std::vector<data::Row> rows{row_of("First?", "", {"yes", "no"}), row_of("Second?", "", {"yes", "no", "caf\u00e9"}),
                              row_of("Third, and longer?", "", {"perhaps", "never", "yes"})};
  for (auto& row : rows) row.is_required = false;
  const auto prepared = [&](const std::vector<data::Row>& some) {
    return PreparedTask(choice_of({}), {some}, tokenizer, model->spec(), {.max_new_tokens = 4});
  };
  const auto task = prepared(rows);
  EXPECT_EQ(task.left_out(), 1);
  ASSERT_EQ(task.rows().size(), 2u);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const size_t number = 2 * i;
    const auto alone = prepared({rows[number]});
    EXPECT_EQ(task.number(i), static_cast<int64_t>(number));
    EXPECT_EQ(task.rows()[i].instruction, rows[number].instruction);
    EXPECT_EQ(task.prompt(i), alone.prompt(0));
    EXPECT_EQ(task.answers(i), rows[number].options);
    EXPECT_EQ(task.answer_tokens(i), alone.answer_tokens(0));
  }
}

// The first row is left out: its question is too long for the model, or leaves no room for its answer.
TEST(AnswerRows, ErrorsCountTheRowsThatWereLeftOut) {
  const auto model = testing::random_model(31, 258);
  model->parameters().at("model.norm.weight").fill_(NAN);
  std::vector<data::Row> rows{row_of(std::string(600, 'q'), "", {"yes", "no"}), row_of("Is it?", "", {"yes", "no"})};
  for (auto& row : rows) row.is_required = false;
  for (const auto scoring : {data::Scoring::kChoice, data::Scoring::kNll})
    for (const bool likelihood : {true, false}) {
      auto task = choice_of({});
      task.scoring = scoring;
      const EvaluationOptions options{.max_new_tokens = 4, .likelihood = likelihood};
      const auto said =
          testing::refusal([&] { testing::evaluate_task(*model, characters(), {}, task, {rows}, options); });
      EXPECT_EQ(said.find("[numeric] task choice: row 1: "), 0u) << said;
    }
}

}  // namespace
}  // namespace evenkeel::scoring
