#include "report/score_table.h"

#include <gtest/gtest.h>

#include <array>
#include <sstream>

#include "base/plain/error.h"

namespace evenkeel::report {
namespace {

/// Returns the text in one line.
std::string words_of(const std::vector<scoring::TaskScore>& scores) {
  std::istringstream stream(score_text(scores));
  std::string all;
  for (std::string word; stream >> word;) all += word + ' ';
  return all;
}

TEST(ScoreTable, FreeTextHasASeparateTable) {
  std::vector<scoring::TaskScore> scores = {
      {.task = "arc_c", .rows = 10, .accuracy = 0.5},
      {.task = "telequad", .rows = 4, .kind = scoring::AnswerKind::kText, .exact_match = 0.125, .f1 = 0.4567}};
  const auto both = score_text(scores);
  for (const auto* part :
       {"task    acc  inv  val", "task        F1    EM  empty", "telequad  45.7  12.5    0.0", "mean      45.7"})
    EXPECT_NE(both.find(part), both.npos) << part << "\n" << both;
  scores[1].bert_score = 0.891;
  EXPECT_NE(score_text(scores).find(" 45.7  12.5  89.1    0.0"), both.npos);
  EXPECT_EQ(score_text(std::span(scores).first(1)).find("F1"), both.npos);
  EXPECT_EQ(score_text(std::span(scores).last(1)).find("acc"), both.npos);
}

TEST(ScoreTable, ANoteExplainsUnreadableAnswers) {
  const auto table = [](double first, double second) {
    return words_of(std::vector<scoring::TaskScore>{{.task = "arc_c", .rows = 10, .invalid_rate = first},
                                                    {.task = "boolq", .rows = 10, .invalid_rate = second}});
  };
  constexpr std::string_view kNote = "most answers cannot be read (inv)";
  EXPECT_NE(table(1.0, 0.2).find(kNote), std::string::npos);
  EXPECT_NE(table(1.0, 1.0).find("no answer can be read (inv 100 %): acc is 0"), std::string::npos) << table(1, 1);
  EXPECT_NE(table(0.6, 0.6).find(kNote), std::string::npos);
  EXPECT_EQ(table(0.5, 0.5).find(kNote), std::string::npos);
  EXPECT_EQ(table(0.0, 0.0).find(kNote), std::string::npos);
  const std::array text = {
      scoring::TaskScore{.task = "telequad", .rows = 4, .invalid_rate = 1.0, .kind = scoring::AnswerKind::kText}};
  EXPECT_EQ(score_text(text).find(kNote), std::string::npos);
}

TEST(ScoreTable, ShowsScoresOfOtherProgramsNextToTheRuns) {
  std::vector<scoring::TaskScore> scores;
  for (const double budget : {0.125, 1.0})
    for (const auto by : {scoring::ServedBy::kRun, scoring::ServedBy::kTransformers, scoring::ServedBy::kNativeGates})
      for (const auto* task : {"arc_c", "boolq"})
        scores.push_back({.task = task,
                          .budget = budget,
                          .served_by = by,
                          .rows = 10,
                          .accuracy = 0.5 + 0.125 * budget - 0.1 * static_cast<double>(by)});
  const auto text = score_text(scores);
  for (const auto* line :
       {"acc, mean over tasks    budget 0.125  budget 1\n", "in the run                      51.6      62.5\n",
        "exported: transformers          41.6      52.5\n", "exported: native gates          31.6      42.5\n",
        "mean over 2 budgets: acc 57.0"})
    EXPECT_NE(text.find(line), text.npos) << line << "\n" << text;
  std::erase_if(scores, [](const scoring::TaskScore& score) { return score.served_by != scoring::ServedBy::kRun; });
  EXPECT_EQ(score_text(scores).find("exported"), std::string::npos);
}

TEST(ScoreTable, AMeanIsOfAllTasksOrThereIsNone) {
  std::vector<scoring::TaskScore> scores;
  for (const double budget : {0.25, 1.0})
    for (const auto* task : {"arc_c", "boolq"})
      scores.push_back({.task = task,
                        .budget = budget,
                        .rows = 10,
                        .accuracy = 0.5,
                        .invalid_rate = budget < 1 && task[0] == 'b' ? 1.0 : 0.5,
                        .accuracy_valid = 0.75});
  const auto unreadable = words_of(scores);
  for (const auto* part : {"boolq 50.0 100.0 - 50.0", "mean 50.0 75.0 - 50.0 50.0 75.0", "acc 50.0, inv 62.5, val -"})
    EXPECT_NE(unreadable.find(part), unreadable.npos) << part << '\n' << unreadable;
  scores.erase(scores.begin() + 1);  // boolq at budget 0.25
  const auto partial = words_of(scores);
  for (const auto* part : {"mean - - - 50.0 50.0 75.0", "acc -, inv -, val -"})
    EXPECT_NE(partial.find(part), partial.npos) << part << '\n' << partial;
}

TEST(ScoreTable, LikelihoodsAreNotPercentages) {
  const std::vector<scoring::TaskScore> scores = {{.task = "files:notes",
                                                   .rows = 4,
                                                   .kind = scoring::AnswerKind::kLikelihood,
                                                   .nll = 2.34567,
                                                   .perplexity = 10.4401}};
  const auto text = score_text(scores);
  for (const auto* part : {"nll    ppl\n", "2.346  10.44\n", "10.44\n"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
}

TEST(ScoreTable, FitsTasksBudgetsAndMeansIntoThePageWidth) {
  std::vector<scoring::TaskScore> scores;
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
  const auto text = score_text(scores);
  for (const auto* part :
       {"budget 0.125, K=1", "budget 1, K=8", "builtin:a-long-name", "62.2", "mean", "chance", " 6.2  100.0"})
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  size_t start = 0;
  for (size_t end = text.find('\n'); end != text.npos; start = end + 1, end = text.find('\n', start))
    EXPECT_LE(end - start, 80u) << text;
}

TEST(ScoreTable, OpensOnTheLogLikelihoodAndHasEveryMeasure) {
  std::vector<scoring::TaskScore> scores(3);
  scores[1].kind = scoring::AnswerKind::kText;
  scores[2].kind = scoring::AnswerKind::kLikelihood;
  for (auto& score : scores) {
    score.task = "t";
    score.rows = score.questions = score.likelihood_rows.emplace(4);
    for (const auto& measure : scoring::measures())
      if (!measure.kind || measure.kind == score.kind) measure.set(score, 0.25);
  }
  const auto text = words_of(scores);
  for (const auto& measure : scoring::measures()) {
    EXPECT_NE(text.find(concat(measure.short_title, ": ", measure.title.substr(0, 9))), text.npos) << measure.name;
  }
  EXPECT_NE(text.find("task log-lik acc inv val lik chance major"), text.npos) << text;
}

}  // namespace
}  // namespace evenkeel::report
