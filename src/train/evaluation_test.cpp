#include "train/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/files.h"
#include "data/builtin_text.h"
#include "data/tokenizer_training.h"
#include "train/generation.h"
#include "train/scoring.h"
#include "train/testing.h"

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
  static const Tokenizer trained = [] {
    const auto file = fs::temp_directory_path() / concat("evenkeel-tokenizer-", ::getpid(), ".json");
    write_file_atomic(file, train_tokenizer(builtin_documents(40, 1), {.vocab_size = 400}));
    auto loaded = Tokenizer::load(file);
    fs::remove(file);
    return loaded;
  }();
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
        evaluate_task(*model, tokenizer(), {}, find_task("boolq"), rows, {.max_new_tokens = 6, .batch_size = batch},
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
      evaluate_task(*model, tokenizer(), {}, find_task("boolq"), rows, {.max_new_tokens = 2}, &predictions);
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
  const auto score = evaluate_task(*model, tokenizer(), {}, find_task("piqa"), some_rows(4),
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

TEST(ScoreTable, ShowsTasksBudgetsAndMeansInANarrowTable) {
  std::vector<TaskScore> scores;
  for (const double budget : {0.125, 0.25, 0.5, 1.0})
    for (const auto* task : {"arc_c", "builtin:a-long-name"})
      scores.push_back({.task = task,
                        .budget = budget,
                        .top_k = static_cast<int64_t>(8 * budget),
                        .rows = 10,
                        .accuracy = budget / 2,
                        .invalid_rate = 1.0,
                        .chance = 0.25,
                        .majority = 0.6217});
  const auto text = score_table(scores);
  for (const auto* part :
       {"budget 0.125, K=1", "budget 1, K=8", "builtin:a-long-name", "62.2", "mean", "chance", " 6.2  100"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  size_t start = 0;
  for (size_t end = text.find('\n'); end != text.npos; start = end + 1, end = text.find('\n', start))
    EXPECT_LE(end - start, 120u) << text;
}

}  // namespace
}  // namespace evenkeel
