#include "scoring/task_evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/format/record.h"
#include "base/system/interrupt.h"
#include "base/testing.h"
#include "data/builtin_text.h"
#include "data/text_metrics.h"
#include "models/testing.h"
#include "scoring/answer_journal.h"
#include "scoring/answering.h"
#include "scoring/generation.h"
#include "scoring/likelihood.h"
#include "scoring/testing.h"
#include "tokenizer/bpe_training.h"

namespace evenkeel::scoring {
namespace {

data::Row row(const std::string& question, const std::string& format, const std::string& answer) {
  return {.instruction = question + "\n\nAnswer format: " + format,
          .input = "",
          .output = "the correct answer is " + answer,
          .answer = answer,
          .label = ""};
}

const tokenizer::Tokenizer& tokenizer() {
  static const tokenizer::Tokenizer trained = tokenizer::Tokenizer::load(
      testing::TemporaryFile(tokenizer::train_tokenizer(data::builtin_documents(40, 1), {.vocab_size = 400})).path());
  return trained;
}

std::vector<data::Row> some_rows(size_t count) {
  std::vector<data::Row> rows;
  for (size_t i = 0; i < count; ++i)
    rows.push_back(row(concat("Is ", i * 7, " larger than ", 40 + i, "?"), "true/false", i % 3 ? "true" : "false"));
  return rows;
}

void expect_same(std::span<const Prediction> one, std::span<const Prediction> other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_EQ(record::write(one[i]).dump(), record::write(other[i]).dump()) << "row " << i;
}

TEST(EvaluateTask, ContinuesAfterTheLastBatchOfTheJournal) {
  const auto model = testing::random_model(21, 400);
  const auto rows = some_rows(11);
  auto nll = data::find_task("boolq");
  nll.scoring = data::Scoring::kNll;
  for (const auto& task : {data::find_task("boolq"), nll}) {
    const testing::TemporaryFolder folder;
    const auto file = folder.path() / "answers.jsonl";
    EvaluationOptions options{.max_new_tokens = 6, .batch_size = 4};
    std::vector<Prediction> whole, resumed;
    const auto score = testing::evaluate_task(*model, tokenizer(), {}, task, {rows}, options, &whole);
    {
      AnswerJournal journal(file);
      options.journal = &journal;
      options.journal_key = "one";
      const auto stop = [](int64_t done, int64_t) {
        if (done >= 8) throw Interrupted("stopped");
      };
      EXPECT_THROW(testing::evaluate_task(*model, tokenizer(), {}, task, {rows}, options, &resumed, stop), Interrupted);
      testing::evaluate_task(*model, tokenizer(), {}, task, {rows}, options, &resumed);
    }
    const auto text = read_file(file);
    // If there are several batches, truncate the last line, as a killed process would.
    if (task.scoring == data::Scoring::kChoice) write_file_atomic(file, text.substr(0, text.size() - 9));
    AnswerJournal journal(file);
    EXPECT_EQ(journal.find("another", 0), nullptr);
    ASSERT_NE(journal.find(task.scoring == data::Scoring::kNll ? "one" : "one; with likelihoods", 0), nullptr);
    options.journal = &journal;
    const auto again = testing::evaluate_task(*model, tokenizer(), {}, task, {rows}, options, &resumed);
    auto without_time = [](TaskScore one) {
      one.seconds = 0;
      return record::write(one).dump();
    };
    EXPECT_EQ(without_time(again), without_time(score));
    expect_same(resumed, whole);
  }
}

TEST(EvaluateTask, UsesTheAnswersOfTheJournal) {
  const auto model = testing::random_model(21, 400);
  const auto rows = some_rows(5);
  const testing::TemporaryFolder folder;
  AnswerJournal journal(folder.path() / "answers.jsonl");
  AnsweredBatch batch{.key = "one; with likelihoods", .first = 0, .answers = {}};
  for (int i = 0; i < 5; ++i)
    batch.answers.push_back({.output = "it is false", .extracted = "", .gold = "", .ranked = "true"});
  journal.add(batch);
  std::vector<Prediction> predictions;
  const auto score = testing::evaluate_task(
      *model, tokenizer(), {}, data::find_task("boolq"), {rows},
      {.max_new_tokens = 6, .batch_size = 4, .journal = &journal, .journal_key = "one"}, &predictions);
  EXPECT_EQ(score.invalid_rate, 0);
  journal.finish();
  EXPECT_FALSE(path_exists(folder.path() / "answers.jsonl"));
}

/// Answers as a journal holds them, to the first rows of some_rows().
AnsweredBatch answers_to_some_rows(const std::vector<std::pair<std::string, std::string>>& outputs_and_ranked) {
  AnsweredBatch batch{.key = "one; with likelihoods", .answers = {}};
  const auto rows = some_rows(outputs_and_ranked.size());
  for (size_t i = 0; i < rows.size(); ++i)
    batch.answers.push_back({.output = outputs_and_ranked[i].first,
                             .extracted = "",
                             .gold = rows[i].answer,
                             .ranked = outputs_and_ranked[i].second});
  return batch;
}

// The right answers are false, true, true, false, true, true, false. Of the unchanged outputs three can be read, two of
// them rightly; of the lower-cased ones six and three.
TEST(EvaluateTask, RatesCountWhatTheOutputsSay) {
  const auto model = testing::random_model(21, 400);
  const testing::TemporaryFolder folder;
  AnswerJournal journal(folder.path() / "answers.jsonl");
  journal.add(answers_to_some_rows({{"it is false", "false"},
                                    {"TRUE", "true"},
                                    {"False, then true", "true"},
                                    {"it is true", "false"},
                                    {"I do not know", "true"},
                                    {"False", "false"},
                                    {"FALSE", "true"}}));
  for (const bool lowercase : {false, true}) {
    std::vector<Prediction> predictions;
    ItemScores items;
    const auto score = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {some_rows(7)},
                                              {.lowercase = lowercase, .journal = &journal, .journal_key = "one"},
                                              &predictions, {}, &items);
    EXPECT_DOUBLE_EQ(score.accuracy, (lowercase ? 3 : 2) / 7.0);
    EXPECT_DOUBLE_EQ(score.accuracy_cased, 2 / 7.0);
    EXPECT_DOUBLE_EQ(score.accuracy_lowercase, 3 / 7.0);
    EXPECT_DOUBLE_EQ(score.invalid_rate, (lowercase ? 1 : 4) / 7.0);
    EXPECT_DOUBLE_EQ(score.accuracy_valid, lowercase ? 3 / 6.0 : 2 / 3.0);
    EXPECT_DOUBLE_EQ(score.accuracy_likelihood, 5 / 7.0);
    EXPECT_EQ(predictions[2].extracted, lowercase ? "false" : "true");
    EXPECT_EQ(items.correct,
              (lowercase ? std::vector<int64_t>{1, 1, 0, 0, 0, 0, 1} : std::vector<int64_t>{1, 0, 1, 0, 0, 0, 0}));
  }
}

TEST(EvaluateTask, SmallCachesGiveTheSameAnswersInSmallerBatches) {
  const auto model = testing::random_model(21, 400);
  const auto rows = some_rows(9);
  std::vector<Prediction> few, many;
  std::vector<int64_t> done;
  testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows}, {.max_new_tokens = 6}, &many);
  testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                         {.max_new_tokens = 6, .cache_gib = 1e-9}, &few,
                         [&](int64_t rows_done, int64_t) { done.push_back(rows_done); });
  EXPECT_EQ(done.size(), 9u);  // one by one
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_NEAR(few[i].nll, many[i].nll, 1e-4);
    few[i].nll = many[i].nll = 0;
  }
  expect_same(few, many);
}

TEST(EvaluateTask, StoppingEarlyDoesNotChangeScores) {
  for (const uint64_t seed : {21, 22, 23}) {
    const auto model = testing::random_model(seed, 400);
    const auto rows = some_rows(8);
    std::vector<Prediction> predictions;
    auto whole = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                                        {.max_new_tokens = 24}, &predictions);
    auto scores =
        testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows}, {.max_new_tokens = 24});
    whole.seconds = scores.seconds = 0;
    EXPECT_EQ(record::write(scores).dump(), record::write(whole).dump());
  }
}

TEST(EvaluateTask, ABFloat16CacheHardlyChangesRankings) {
  const auto model = testing::random_model(21, 400);
  const auto rows = some_rows(9);
  std::vector<Prediction> exact, rounded;
  testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows}, {.max_new_tokens = 1}, &exact);
  testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                         {.max_new_tokens = 1, .cache = nn::KvType::kBFloat16}, &rounded);
  int64_t same = 0;
  for (size_t i = 0; i < rows.size(); ++i) same += exact[i].ranked == rounded[i].ranked;
  EXPECT_GE(same, 8);
}

TEST(EvaluateTask, ScoresDoNotDependOnTheBatch) {
  const auto model = testing::random_model(21, 400);
  const auto rows = some_rows(7);
  std::vector<std::vector<Prediction>> all;
  for (const int64_t batch : {1, 3, 32}) {
    std::vector<Prediction> predictions;
    int64_t reported = 0;
    const auto score = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                                              {.max_new_tokens = 6, .batch_size = batch}, &predictions,
                                              [&](int64_t done, int64_t) { reported = done; });
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

/// The log-probability of a text behind a prompt.
double logprob_after(const models::CausalLm& model, const std::string& prompt, const std::string& text) {
  const std::vector<TokenIds> both{tokenizer().encode(prompt), tokenizer().encode(prompt + text)};
  std::vector<double> logprobs;
  score_texts(model, {}, both, {}, [&](size_t, const TextScore& score) { logprobs.push_back(score.logprob); });
  return logprobs[1] - logprobs[0];
}

TEST(EvaluateTask, RanksByTheLikelihoodOfTheTrainedResponse) {
  const auto model = testing::random_model(22, 400);
  const auto rows = some_rows(5);
  std::vector<Prediction> predictions;
  ItemScores items;
  const auto score = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                                            {.max_new_tokens = 2}, &predictions, {}, &items);
  int64_t right = 0;
  double log_likelihood = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto prompt = data::evaluation_prompt(rows[i], data::PromptTemplate::kPaper);
    std::map<double, std::string> by_logprob;
    for (const std::string answer : {"true", "false"})
      by_logprob[logprob_after(*model, prompt, "the correct answer is " + answer)] = answer;
    EXPECT_EQ(predictions[i].ranked, by_logprob.rbegin()->second);
    right += predictions[i].ranked == rows[i].answer;
    const double of_gold = logprob_after(*model, prompt, "the correct answer is " + rows[i].answer);
    EXPECT_NEAR(items.log_likelihood.at(i), of_gold, 1e-4);
    log_likelihood += of_gold / 5;
  }
  EXPECT_DOUBLE_EQ(score.accuracy_likelihood, static_cast<double>(right) / 5);
  EXPECT_NEAR(score.log_likelihood.value(), log_likelihood, 1e-4);
  EXPECT_EQ(items.correct, std::vector<int64_t>(5, 0));  // a random model writes nothing that can be read
  EXPECT_TRUE(items.f1.empty());
}

TEST(EvaluateTask, RowsThatAreNotRankedHaveNoLogLikelihood) {
  const auto model = testing::random_model(22, 400);
  const auto rows = some_rows(3);
  ItemScores items;
  const auto score = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                                            {.max_new_tokens = 2, .likelihood = false}, nullptr, {}, &items);
  EXPECT_FALSE(score.log_likelihood);
  EXPECT_FALSE(record::write(score).contains("log_likelihood"));
  EXPECT_TRUE(items.log_likelihood.empty());
  EXPECT_EQ(items.correct.size(), 3u);
}

TEST(EvaluateTask, CountsInvalidAnswersOfARandomModel) {
  const auto model = testing::random_model(23, 400);
  std::vector<Prediction> predictions;
  const auto score = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("piqa"), {some_rows(4)},
                                            {.max_new_tokens = 5, .likelihood = false}, &predictions);
  EXPECT_DOUBLE_EQ(score.invalid_rate, 1.0);
  EXPECT_DOUBLE_EQ(score.accuracy + score.accuracy_valid + score.accuracy_lowercase + score.accuracy_likelihood, 0.0);
  EXPECT_DOUBLE_EQ(score.chance, 0.5);
  EXPECT_DOUBLE_EQ(score.majority, 0.5);
  for (const auto& one : predictions) EXPECT_TRUE(one.extracted.empty() && one.ranked.empty());
}

TEST(EvaluateTask, RejectsAnEmptyListOfRows) {
  const auto model = testing::random_model(24, 400);
  EXPECT_THROW(testing::evaluate_task(*model, tokenizer(), {}, data::find_task("piqa"), {}, {}), Error);
}

data::TaskRows some_questions() {
  data::TaskRows set;
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
  const auto score =
      testing::evaluate_task(*model, tokenizer(), {}, data::find_task("telequad"), set, options, &predictions);
  EXPECT_EQ(score.kind, AnswerKind::kText);
  double exact = 0, f1 = 0;
  for (size_t i = 0; i < predictions.size(); ++i) {
    const auto match = data::best_match(predictions[i].output, set.rows[i].references);
    EXPECT_EQ(predictions[i].references, set.rows[i].references);
    EXPECT_DOUBLE_EQ(predictions[i].f1, match.f1);
    EXPECT_TRUE(predictions[i].ranked.empty());
    exact += match.exact_match / 5, f1 += match.f1 / 5;
  }
  EXPECT_DOUBLE_EQ(score.exact_match, exact);
  EXPECT_DOUBLE_EQ(score.f1, f1);
  EXPECT_FALSE(score.bert_score);
}

TEST(EvaluateTask, LikelihoodOfFreeTextIsThatOfTheFirstReference) {
  const auto model = testing::random_model(25, 400);
  auto set = some_questions();
  set.rows[0].references = {" ", "word3 "};
  set.rows[2].references = {"a reference that has more tokens than are generated", "word1"};
  std::vector<Prediction> with, without;
  ItemScores items;
  EvaluationOptions options{.max_new_tokens = 7, .batch_size = 2};
  const auto score =
      testing::evaluate_task(*model, tokenizer(), {}, data::find_task("telequad"), set, options, &with, {}, &items);
  const auto prompt = data::evaluation_prompt(set.rows[0], data::PromptTemplate::kPaper);  // the others are cut
  EXPECT_NEAR(with[0].nll, -logprob_after(*model, prompt, "word3"), 1e-4);
  EXPECT_EQ(with[2].answer_tokens, 0);
  EXPECT_EQ(items.log_likelihood.size(), 4u);
  EXPECT_EQ(score.likelihood_rows, 4);
  EXPECT_EQ(items.f1.size(), 5u);
  EXPECT_NEAR(score.log_likelihood.value(), -(with[0].nll + with[1].nll + with[3].nll + with[4].nll) / 4, 1e-9);
  options.likelihood = false;
  const auto other =
      testing::evaluate_task(*model, tokenizer(), {}, data::find_task("telequad"), set, options, &without);
  EXPECT_FALSE(other.log_likelihood);
  EXPECT_FALSE(other.likelihood_rows);
  for (size_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i].output, without[i].output);
  options.likelihood = true;
  for (auto& row : set.rows) row.references = {"a reference that has more tokens than are generated"};
  const auto none = testing::evaluate_task(*model, tokenizer(), {}, data::find_task("telequad"), set, options);
  EXPECT_FALSE(none.log_likelihood);
  EXPECT_EQ(none.likelihood_rows, 0);
}

TEST(EvaluateTask, TheChanceRateIsThatOfTheAnswersThatAreRanked) {
  const auto model = testing::random_model(28, 400);
  const auto task = data::find_task("arc_c");
  const std::vector<data::Row> rows = {row("q", "answer1/answer2\nSay answer1/answer2/answer3.", "answer1"),
                                       row("q", "answer1//answer2/answer3/ ", "answer2"),
                                       row("q", "", "answer1"),
                                       {.instruction = "q\nAnswer format:answer1/answer4",
                                        .input = "",
                                        .output = "the correct answer is answer4",
                                        .answer = "answer4",
                                        .label = ""}};
  const EvaluationOptions options{.max_new_tokens = 3};
  const PreparedTask prepared(task, {rows}, tokenizer(), model->spec(), options);
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) sum += 1.0 / static_cast<double>(prepared.answers(i).size());
  EXPECT_EQ(sum, 1.0 / 2 + 1.0 / 3 + 1.0 / 5 + 1.0 / 2);
  EXPECT_EQ(prepared.chance(), sum / 4);
}

TEST(EvaluateTask, AContextThatDoesNotFitIsTruncated) {
  const auto model = testing::random_model(26, 400);  // 512 positions
  const auto set = some_questions();
  const auto cut = [&](int64_t cutoff) {
    const EvaluationOptions options{.max_new_tokens = 3, .cutoff = cutoff};
    return testing::evaluate_task(*model, tokenizer(), {}, data::find_task("telequad"), set, options).context_cut;
  };
  EXPECT_GE(cut(0), 1);
  EXPECT_LT(cut(0), 5);
  EXPECT_EQ(cut(240), 5);
  EXPECT_THROW(cut(20), Error);
}

data::TaskInfo own_task(data::Scoring scoring) {
  return {.name = "files", .file = "", .answers = {}, .source = "", .scoring = scoring, .family = "files"};
}

TEST(EvaluateTask, ExactMatchCanCompareWithoutNormalisation) {
  const auto model = testing::random_model(27, 400);
  auto set = some_questions();
  std::vector<Prediction> predictions;
  const EvaluationOptions options{.max_new_tokens = 5};
  testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kF1), set, options, &predictions);
  for (size_t i = 0; i < set.rows.size(); ++i) set.rows[i].references = {concat("  The ", predictions[i].output, "\n")};
  const auto loose = testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kF1), set, options);
  const auto strict = testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kExact), set, options);
  EXPECT_DOUBLE_EQ(loose.exact_match, 1);  // articles do not count
  EXPECT_DOUBLE_EQ(strict.exact_match, 0);
  EXPECT_DOUBLE_EQ(strict.f1, loose.f1);
  for (size_t i = 0; i < set.rows.size(); ++i) set.rows[i].references = {"no", predictions[i].output + "\n"};
  EXPECT_DOUBLE_EQ(
      testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kExact), set, options, &predictions)
          .exact_match,
      1);
}

TEST(EvaluateTask, OptionsOfARowAreRankedAfterTheLeadOfTheRow) {
  const auto model = testing::random_model(28, 400);
  std::vector<data::Row> rows;
  for (int i = 0; i < 4; ++i) {
    rows.push_back({.instruction = concat("Is it ", i, "?"),
                    .input = "",
                    .output = i % 2 ? "I say no" : "I say yes",
                    .answer = i % 2 ? "no" : "yes",
                    .options = {"yes", "no", "maybe so"}});
  }
  std::vector<Prediction> predictions;
  const auto score = testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kChoice), {rows},
                                            {.max_new_tokens = 2}, &predictions);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::map<double, std::string> by_logprob;
    for (const auto& option : rows[i].options) {
      const auto prompt = data::evaluation_prompt(rows[i], data::PromptTemplate::kPaper);
      const std::vector<TokenIds> text{tokenizer().encode(prompt + "I say " + option)};
      const auto start = static_cast<int64_t>(tokenizer().encode(prompt).size()) - 1;
      score_texts(*model, {}, text, {}, [&](size_t, const TextScore& s) {
        double sum = 0;
        for (size_t t = static_cast<size_t>(start); t < s.token_logprobs.size(); ++t) sum += s.token_logprobs[t];
        by_logprob[sum] = option;
      });
    }
    EXPECT_EQ(predictions[i].ranked, by_logprob.rbegin()->second);
  }
  EXPECT_DOUBLE_EQ(score.chance, 1.0 / 3);
  EXPECT_DOUBLE_EQ(score.majority, 0.5);
}

TEST(CheckTestRows, RejectsRowsThatCannotBeScored) {
  const auto refuses = [](const data::TaskInfo& task, const data::Row& bad) {
    EXPECT_THROW(check_test_rows(task, std::vector{bad}), Error) << bad.answer;
  };
  const auto boolq = data::find_task("boolq");
  EXPECT_NO_THROW(check_test_rows(boolq, some_rows(3)));
  for (const auto* answer : {"True", "false ", "maybe", ""}) refuses(boolq, row("Is it?", "true/false", answer));
  refuses(boolq, {.instruction = " ", .input = "", .output = "true", .answer = "true"});
  refuses(own_task(data::Scoring::kChoice), {.instruction = "q", .input = "", .output = "x", .answer = "x"});
  refuses(own_task(data::Scoring::kChoice),
          {.instruction = "q", .input = "", .output = "x", .answer = "z", .options = {"x", "y"}});
  for (const auto scoring : {data::Scoring::kF1, data::Scoring::kExact}) {
    refuses(own_task(scoring), {.instruction = "q", .input = "", .output = "x", .answer = "x"});
    refuses(own_task(scoring),
            {.instruction = "q", .input = "", .output = "", .answer = "", .references = {"", " \n"}});
    refuses(own_task(scoring), {.instruction = "",
                                .input = "",
                                .output = "x",
                                .answer = "x",
                                .references = {"x"},
                                .turns = {{"user", " "}, {"assistant", "x"}}});
  }
  refuses(own_task(data::Scoring::kNll), {.instruction = "q", .input = "", .output = "\n", .answer = ""});
}

TEST(EvaluateTask, ReportsATooLongPromptBeforeAnyAnswer) {
  const auto model = testing::random_model(30, 400);
  auto rows = some_rows(6);
  rows[4].instruction += std::string(4000, 'x');
  int64_t answered = 0;
  EXPECT_THROW(
      testing::evaluate_task(*model, tokenizer(), {}, data::find_task("boolq"), {rows},
                             {.max_new_tokens = 3, .batch_size = 1}, nullptr, [&](int64_t, int64_t) { ++answered; }),
      Error);
  EXPECT_EQ(answered, 0);
}

TEST(EvaluateTask, ATrailingSpaceOfAPlainPromptBelongsToTheAnswer) {
  const auto model = testing::random_model(31, 400);
  const auto scored = [&](const std::string& behind_prompt, const std::string& before_answer) {
    std::vector<data::Row> rows;
    for (int i = 0; i < 6; ++i) {
      const std::string answer = i % 2 ? "small" : "large";
      rows.push_back({.instruction = concat("Is ", i, " large or small? It is", behind_prompt),
                      .input = "",
                      .output = before_answer + answer,
                      .answer = answer,
                      .options = {"large", "small", "none of the two"}});
    }
    std::vector<Prediction> predictions;
    testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kChoice), {rows},
                           {.form = data::PromptTemplate::kPlain, .max_new_tokens = 4}, &predictions);
    std::string said;
    for (const auto& one : predictions) said += concat(one.ranked, "/", one.output, "\n");
    return said;
  };
  EXPECT_EQ(scored(" ", ""), scored("", " "));
}

TEST(PreparedTask, WhatARowDoesNotHaveIsAnInternalError) {
  const auto model = testing::random_model(29, 400);
  const auto make = [&](const data::TaskInfo& task, const data::TaskRows& set, bool likelihood) {
    return PreparedTask(task, set, tokenizer(), model->spec(), {.max_new_tokens = 4, .likelihood = likelihood});
  };
  const auto expect_internal = [](const auto& work) {
    try {
      work();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kInternal) << error.what();
    }
  };
  const auto ranked = make(data::find_task("boolq"), {.rows = some_rows(3)}, true);
  const auto plain = make(data::find_task("boolq"), {.rows = some_rows(3)}, false);
  const auto nll = make(own_task(data::Scoring::kNll), some_questions(), true);
  EXPECT_EQ(ranked.answer_tokens(2).size(), ranked.answers(2).size());
  EXPECT_FALSE(plain.is_context_cut(2));
  for (const auto& [task, row] : {std::pair(&ranked, 3), {&plain, 5}, {&nll, 0}}) {
    expect_internal([&, &task = *task, row = row] { task.prompt(row); });
    expect_internal([&, &task = *task, row = row] { task.is_context_cut(row); });
  }
  for (const auto& [task, row] : {std::pair(&ranked, 3), {&plain, 0}, {&nll, 0}}) {
    expect_internal([&, &task = *task, row = row] { task.answers(row); });
    expect_internal([&, &task = *task, row = row] { task.answer_tokens(row); });
  }
}

TEST(EvaluateTask, LikelihoodIsThatOfTheAnswerTokensAfterThePrompt) {
  const auto model = testing::random_model(29, 400);
  const auto set = some_questions();
  std::vector<Prediction> predictions;
  const auto score = testing::evaluate_task(*model, tokenizer(), {}, own_task(data::Scoring::kNll), set,
                                            {.cutoff = 150}, &predictions);
  const data::TokenizeOptions training{.cutoff = 150, .eos = model->spec().end_of_text};
  auto rows = set.rows;
  for (auto& row : rows) row.answer_at = -1;  // contexts keep their beginning
  const auto whole = data::tokenize_rows(rows, tokenizer(), training);
  EXPECT_EQ(score.cut, whole.cut);
  EXPECT_GT(score.cut, 0);
  double sum = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < whole.examples.size(); ++i) {  // each row in a batch of its own
    const auto loss = model->loss(data::pack(std::span(&whole.examples[i], 1)), {});
    const auto& one = predictions[static_cast<size_t>(whole.rows[i])];
    EXPECT_EQ(one.answer_tokens, loss.count);
    EXPECT_NEAR(one.nll, loss.sum.item<double>(), 1e-3);
    sum += loss.sum.item<double>(), tokens += loss.count;
  }
  EXPECT_EQ(score.kind, AnswerKind::kLikelihood);
  EXPECT_EQ(score.answer_tokens, tokens);
  EXPECT_NEAR(score.nll, sum / static_cast<double>(tokens), 1e-4);
  EXPECT_DOUBLE_EQ(score.perplexity, std::exp(score.nll));
  EXPECT_NEAR(score.log_likelihood.value(), -sum / static_cast<double>(whole.examples.size()), 1e-3);
}

TEST(EvaluateTask, RecordsContainTheMeasuresOfTheirScoring) {
  TaskScore text{.task = "telequad", .kind = AnswerKind::kText, .exact_match = 0.25, .f1 = 0.5};
  EXPECT_FALSE(record::write(text).contains("accuracy") || record::write(text).contains("bert_score"));
  EXPECT_EQ(record::write(text)["f1"], 0.5);
  text.bert_score = 0.75;
  EXPECT_EQ(record::write(text)["bert_score"], 0.75);
  EXPECT_FALSE(record::write(TaskScore{.task = "boolq"}).contains("f1"));
  const auto likelihood = record::write(TaskScore{.task = "files", .kind = AnswerKind::kLikelihood, .nll = 1.5});
  EXPECT_FALSE(likelihood.contains("accuracy") || likelihood.contains("f1"));
  const Json json = Json::parse(likelihood.dump());
  const auto again = record::read<TaskScore>(JsonView(json, "here"));
  EXPECT_EQ(again.kind, AnswerKind::kLikelihood);
  EXPECT_EQ(again.nll, 1.5);
}

}  // namespace
}  // namespace evenkeel::scoring
