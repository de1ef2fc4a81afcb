#include "scoring/task_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "data/text_metrics.h"
#include "scoring/answer_likelihood.h"
#include "scoring/answering.h"
#include "scoring/bert_score.h"

namespace evenkeel::scoring {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Returns whether an answer is correct. An empty answer never is.
bool is_right(const std::string& answer, const std::string& gold) { return !answer.empty() && answer == gold; }

void count_answers(const data::TaskInfo& task, std::span<const data::Row> rows, bool lowercase,
                   std::span<Prediction> predictions, TaskScore& score) {
  int64_t cased = 0, lower = 0, valid = 0, ranked = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    auto& one = predictions[i];
    const auto as_is = data::extract_answer(task, rows[i], one.output, false);
    const auto lower_case = data::extract_answer(task, rows[i], one.output, true);
    one.extracted = lowercase ? lower_case : as_is;
    cased += is_right(as_is, one.gold);
    lower += is_right(lower_case, one.gold);
    valid += !one.extracted.empty();
    ranked += is_right(one.ranked, one.gold);
  }
  const int64_t correct = lowercase ? lower : cased;
  score.accuracy = share(correct, score.rows);
  score.accuracy_cased = share(cased, score.rows);
  score.accuracy_lowercase = share(lower, score.rows);
  score.invalid_rate = share(score.rows - valid, score.rows);
  score.accuracy_valid = share(correct, valid);
  score.accuracy_likelihood = share(ranked, score.rows);
}

bool is_said(const std::string& output, std::span<const std::string> references) {
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& reference) { return is_right(output, data::strip(reference)); });
}

/// Scores free text.
/// \param to_the_letter  whether an exact match compares the texts without normalising them
void compare_texts(std::span<const data::Row> rows, bool exact, std::span<Prediction> predictions, TaskScore& score) {
  const double weight = 1.0 / static_cast<double>(predictions.size());
  for (size_t i = 0; i < predictions.size(); ++i) {
    auto& one = predictions[i];
    one.references = rows[i].references;
    const auto match = data::best_match(one.output, one.references);
    one.exact_match = exact ? is_said(one.output, one.references) : match.exact_match;
    one.f1 = match.f1;
    score.exact_match += weight * one.exact_match;
    score.f1 += weight * match.f1;
    score.empty_rate += one.output.empty() ? weight : 0;
  }
}

void compare_meanings(const BertScorer& scorer, std::span<Prediction> predictions, TaskScore& score) {
  std::vector<ComparedText> texts;
  for (const auto& one : predictions) texts.push_back({one.output, one.references});
  double sum = 0;
  scorer.score(texts, [&](size_t i, const BertScore& match) {
    predictions[i].bert_score = match.rescaled.value_or(match.raw).f1;
    sum += *predictions[i].bert_score;
  });
  score.bert_score = sum / static_cast<double>(predictions.size());
}

void score_answers(const PreparedTask& prepared, const EvaluationOptions& options, std::span<Prediction> predictions,
                   TaskScore& score) {
  const auto& task = prepared.task();
  const auto rows = prepared.rows();
  if (task.free_text()) {
    score.kind = AnswerKind::kText;
    compare_texts(rows, task.scoring == data::Scoring::kExact, predictions, score);
    if (options.bert_scorer) compare_meanings(*options.bert_scorer, predictions, score);
    return;
  }
  count_answers(task, rows, options.lowercase, predictions, score);
  score.chance = prepared.chance();
  score.majority = data::majority_rate(rows);
}

/// Fills in the mean log-likelihood of the correct answers whose likelihood is known, and their number.
void add_log_likelihood(std::span<const Prediction> predictions, TaskScore& score) {
  double sum = 0;
  int64_t count = 0;
  for (const auto& one : predictions)
    if (one.answer_tokens > 0) sum -= one.nll, ++count;
  if (count > 0) score.log_likelihood = sum / static_cast<double>(count);
  score.likelihood_rows = count;
}

/// Rounds to a millionth of a nat, which keeps the files of items short.
double rounded(double nats) { return std::round(nats * 1e6) / 1e6; }

ItemScores items_of(AnswerKind kind, std::span<const Prediction> predictions) {
  ItemScores items;
  for (const auto& one : predictions) {
    if (one.answer_tokens > 0) items.log_likelihood.push_back(rounded(-one.nll));
    if (kind == AnswerKind::kChoice) items.correct.push_back(is_right(one.extracted, one.gold));
    if (kind != AnswerKind::kText) continue;
    items.correct.push_back(one.exact_match > 0);
    items.f1.push_back(one.f1);
  }
  return items;
}

using Clock = std::chrono::steady_clock;

/// Computes the likelihoods of rows [first, first + count) among the rows whose answer was not truncated, as
/// predictions.
AnsweredBatch likelihoods_of(const models::CausalLm& model, const models::ForwardOptions& forward,
                             const PreparedTask& task, size_t first) {
  const auto rest = std::span(task.examples().examples).subspan(first);
  const auto together = rest.first(rows_together(rest));
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < together.size(); ++i)
    numbers.push_back(task.number(static_cast<size_t>(task.examples().rows[first + i])));
  AnsweredBatch batch{.key = {}, .answers = {}};
  try {
    for (const auto& answer : answer_likelihoods(model, forward, together, numbers)) {
      auto& one = batch.answers.emplace_back();
      one.nll = -answer.logprob;
      one.answer_tokens = answer.tokens;
    }
  } catch (const Error& error) {
    throw error.with_context(concat("task ", task.task().name));
  }
  return batch;
}

/// Fills in predictions and score of a task with Scoring::kNll.
void weigh_answers(const EvaluatedModel& evaluated, const PreparedTask& task, const EvaluationOptions& options,
                   std::span<Prediction> predictions, TaskScore& score, const OnRows& on_progress) {
  const auto& whole = task.examples();
  const auto rows = task.rows();
  std::vector<Prediction> weighed(whole.examples.size());
  const auto forward = evaluated.model.prepared(evaluated.forward);
  double nll = 0;
  for (size_t first = 0; first < weighed.size();) {
    auto batch = get_or_compute(options.journal, options.journal_key, first,
                                [&] { return likelihoods_of(evaluated.model, forward, task, first); });
    score.seconds += batch.seconds;
    for (const size_t end = first + hand_over(batch, std::span(weighed).subspan(first)); first < end; ++first) {
      nll += weighed[first].nll;
      score.answer_tokens += weighed[first].answer_tokens;
      predictions[static_cast<size_t>(whole.rows[first])] = std::move(weighed[first]);
      if (on_progress) on_progress(whole.rows[first] + 1, static_cast<int64_t>(rows.size()));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) predictions[i].gold = rows[i].answer;
  score.kind = AnswerKind::kLikelihood;
  score.cut = whole.cut;
  score.nll = nll / static_cast<double>(score.answer_tokens);
  score.perplexity = std::exp(score.nll);
}

/// Says of which row each prediction is, and what the row asks.
void name_rows(std::span<const data::Row> rows, std::span<Prediction> predictions) {
  for (size_t i = 0; i < rows.size(); ++i) {
    predictions[i].file = rows[i].place.file ? *rows[i].place.file : "";
    predictions[i].row = rows[i].place.row;
    predictions[i].question = rows[i].instruction;
  }
}

}  // namespace

void check_task(const models::CausalLm& shape, const PreparedTask& task, const EvaluationOptions& options) {
  if (task.task().scoring != data::Scoring::kNll) check_prompts(shape, task, options);
}

TaskScore evaluate_task(const EvaluatedModel& evaluated, const PreparedTask& task, const EvaluationOptions& options,
                        const RowOutputs& outputs, const OnRows& on_progress) {
  EK_CHECK(options.batch_size > 0, kConfig, "evaluation batch size is ", options.batch_size, ", allowed: 1 or more");
  EK_CHECK(task.fits(options), kInternal, "task ", task.task().name, " was prepared for other lengths");
  TaskScore score;
  score.task = task.task().name;
  const int64_t top_k = evaluated.forward.router.top_k;
  score.top_k = top_k > 0 ? top_k : evaluated.model.spec().top_k;
  score.rows = static_cast<int64_t>(task.rows().size());
  score.questions = task.questions();
  std::vector<Prediction> all(task.rows().size());
  if (task.task().scoring == data::Scoring::kNll) {
    weigh_answers(evaluated, task, options, all, score, on_progress);
  } else {
    const bool whole = outputs.predictions != nullptr;
    const auto key =  // older journals hold answers without likelihoods
        concat(options.journal_key, "; with likelihoods", whole ? "" : "; outputs as far as they are read");
    auto answers = answer_rows(evaluated, task, options, {whole, key}, on_progress);
    all = std::move(answers.predictions);
    score.context_cut = answers.context_cut;
    score.seconds = answers.seconds;
    const auto start = Clock::now();
    score_answers(task, options, all, score);
    score.seconds += seconds_since(start);
  }
  if (task.weighs_answers() || score.kind == AnswerKind::kLikelihood) add_log_likelihood(all, score);
  if (outputs.items) *outputs.items = items_of(score.kind, all);
  if (!outputs.predictions) return score;
  name_rows(task.rows(), all);
  *outputs.predictions = std::move(all);
  return score;
}

}  // namespace evenkeel::scoring
