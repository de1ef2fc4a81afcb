#include "scoring/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/record.h"
#include "base/testing.h"
#include "data/builtin_text.h"
#include "data/text_metrics.h"
#include "models/testing.h"
#include "scoring/generation.h"
#include "scoring/likelihood.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel {
namespace {

Row row(const std::string& question, const std::string& format, const std::string& answer) {
  return {.instruction = question + "\n\nAnswer format: " + format,
          .input = "",
          .output = "the correct answer is " + answer,
          .answer = answer,
          .label = ""};
}

const Tokenizer& tokenizer() {
  static const Tokenizer trained =
      Tokenizer::load(testing::TemporaryFile(train_tokenizer(builtin_documents(40, 1), {.vocab_size = 400})).path());
  return trained;
}

std::vector<Row> some_rows(size_t count) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i)
    rows.push_back(row(concat("Is ", i * 7, " larger than ", 40 + i, "?"), "true/false", i % 3 ? "true" : "false"));
  return rows;
}

TEST(RowAnswers, AreThoseOfTheAnswerFormatLine) {
  const auto& task = find_task("arc_c");
  EXPECT_EQ(row_answers(task, row("q", "answer1/answer2/answer3", "answer1")),
            (std::vector<std::string>{"answer1", "answer2", "answer3"}));
  EXPECT_EQ(row_answers(task, row("q Answer format: a/b\n", " x / y \nmore", "x")),
            (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(row_answers(task, Row()).size(), task.answers.size());
}

TEST(EvaluateTask, ScoresDoNotDependOnTheBatch) {
  const auto model = testing::random_model(21, 400);
  const auto rows = some_rows(7);
  std::vector<std::vector<Prediction>> all;
  for (const int64_t batch : {1, 3, 32}) {
    std::vector<Prediction> predictions;
    int64_t reported = 0;
    const auto score =
        evaluate_task(*model, tokenizer(), {}, find_task("boolq"), {rows}, {.max_new_tokens = 6, .batch_size = batch},
                      &predictions, [&](int64_t done, int64_t) { reported = done; });
    EXPECT_EQ(score.rows, 7);
    EXPECT_EQ(score.top_k, 3);
    EXPECT_EQ(reported, 7);
    all.push_back(std::move(predictions));
  }
  for (const auto& predictions : all)
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(predictions[i].output, all[0][i].output);
      EXPECT_EQ(predictions[i].ranked, all[0][i].ranked);
      EXPECT_EQ(predictions[i].gold, rows[i].answer);
    }
}

TEST(EvaluateTask, RanksByTheLikelihoodOfTheTrainedResponse) {
  const auto model = testing::random_model(22, 400);
  const auto rows = some_rows(5);
  std::vector<Prediction> predictions;
  const auto score =
      evaluate_task(*model, tokenizer(), {}, find_task("boolq"), {rows}, {.max_new_tokens = 2}, &predictions);
  int64_t right = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::map<double, std::string> by_logprob;
    for (const std::string answer : {"true", "false"}) {
      const auto prompt = evaluation_prompt(rows[i], PromptTemplate::kPaper);
      const std::vector<TokenIds> text{tokenizer().encode(prompt + "the correct answer is " + answer)};
      score_texts(*model, {}, text, false, [&](size_t, const TextScore& s) { by_logprob[s.logprob] = answer; });
    }
    EXPECT_EQ(predictions[i].ranked, by_logprob.rbegin()->second);
    right += predictions[i].ranked == rows[i].answer;
  }
  EXPECT_DOUBLE_EQ(score.accuracy_likelihood, static_cast<double>(right) / 5);
}

TEST(EvaluateTask, ARandomModelWritesNoReadableAnswerAndThatIsCounted) {
  const auto model = testing::random_model(23, 400);
  std::vector<Prediction> predictions;
  const auto score = evaluate_task(*model, tokenizer(), {}, find_task("piqa"), {some_rows(4)},
                                   {.max_new_tokens = 5, .likelihood = false}, &predictions);
  EXPECT_DOUBLE_EQ(score.invalid_rate, 1.0);
  EXPECT_DOUBLE_EQ(score.accuracy + score.accuracy_valid + score.accuracy_lowercase + score.accuracy_likelihood, 0.0);
  EXPECT_DOUBLE_EQ(score.chance, 0.5);
  EXPECT_DOUBLE_EQ(score.majority, 0.5);
  for (const auto& one : predictions) EXPECT_TRUE(one.extracted.empty() && one.ranked.empty());
}

TEST(EvaluateTask, RefusesNoRows) {
  const auto model = testing::random_model(24, 400);
  EXPECT_THROW(evaluate_task(*model, tokenizer(), {}, find_task("piqa"), {}, {}), Error);
}

TaskRows some_questions() {
  TaskRows set;
  for (int i = 0; i < 5; ++i) {
    std::string context;
    for (int word = 0; word < 40 * (i + 1); ++word) context += concat(word ? " " : "", "word", word);
    set.rows.push_back({.instruction = "Which?",
                        .input = context,
                        .output = "word1",
                        .answer = "word1",
                        .references = {"word1", "word1 word2"},
                        .answer_at = 6});
  }
  return set;
}

TEST(EvaluateTask, FreeTextIsComparedWithItsReferences) {
  const auto model = testing::random_model(25, 400);
  const auto set = some_questions();
  std::vector<Prediction> predictions;
  const EvaluationOptions options{.max_new_tokens = 7, .batch_size = 2};
  const auto score = evaluate_task(*model, tokenizer(), {}, find_task("telequad"), set, options, &predictions);
  EXPECT_EQ(score.kind, AnswerKind::kText);
  double exact = 0, f1 = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const auto match = best_match(predictions[i].output, set.rows[i].references);
    EXPECT_EQ(predictions[i].references, set.rows[i].references);
    EXPECT_DOUBLE_EQ(predictions[i].f1, match.f1);
    EXPECT_TRUE(predictions[i].ranked.empty());
    exact += match.exact_match / 5, f1 += match.f1 / 5;
  }
  EXPECT_DOUBLE_EQ(score.exact_match, exact);
  EXPECT_DOUBLE_EQ(score.f1, f1);
  EXPECT_FALSE(score.bert_score);
}

TEST(EvaluateTask, AContextThatDoesNotFitLosesItsTail) {
  const auto model = testing::random_model(26, 400);  // 512 positions
  const auto set = some_questions();
  const auto cut = [&](int64_t cutoff) {
    const EvaluationOptions options{.max_new_tokens = 3, .cutoff = cutoff};
    return evaluate_task(*model, tokenizer(), {}, find_task("telequad"), set, options).context_cut;
  };
  EXPECT_GE(cut(0), 1);
  EXPECT_LT(cut(0), 5);
  EXPECT_EQ(cut(240), 5);
  EXPECT_THROW(cut(20), Error);
}

TEST(EvaluateTask, RecordsHaveTheMeasuresOfTheirKind) {
  TaskScore text{.task = "telequad", .kind = AnswerKind::kText, .exact_match = 0.25, .f1 = 0.5};
  EXPECT_FALSE(record::write(text).contains("accuracy") || record::write(text).contains("bert_score"));
  EXPECT_EQ(record::write(text)["f1"], 0.5);
  text.bert_score = 0.75;
  EXPECT_EQ(record::write(text)["bert_score"], 0.75);
  EXPECT_FALSE(record::write(TaskScore{.task = "boolq"}).contains("f1"));
}

}  // namespace
}  // namespace evenkeel
