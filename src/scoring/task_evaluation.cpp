#include "scoring/task_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "data/text_metrics.h"
#include "scoring/answer_likelihood.h"
#include "scoring/answering.h"
#include "scoring/bert_score.h"

namespace evenkeel {
namespace {

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Returns whether an answer is correct. An empty answer never is.
bool is_right(const std::string& answer, const std::string& gold) { return !answer.empty() && answer == gold; }

void count_answers(const TaskInfo& task, std::span<const Row> rows, bool lowercase, std::span<Prediction> predictions,
                   TaskScore& score) {
  int64_t cased = 0, lower = 0, valid = 0, ranked = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    auto& one = predictions[i];
    const auto as_is = extract_answer(task, rows[i], one.output, false);
    const auto lower_case = extract_answer(task, rows[i], one.output, true);
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
                     [&](const std::string& reference) { return is_right(output, strip(reference)); });
}

/// Scores free text.
/// \param to_the_letter  whether an exact match compares the texts without normalising them
void compare_texts(std::span<const Row> rows, bool exact, std::span<Prediction> predictions, TaskScore& score) {
  const double weight = 1.0 / static_cast<double>(predictions.size());
  for (size_t i = 0; i < predictions.size(); ++i) {
    auto& one = predictions[i];
    one.references = rows[i].references;
    const auto match = best_match(one.output, one.references);
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

void score_answers(const TaskInfo& task, const TaskRows& set, const EvaluationOptions& options,
                   std::span<Prediction> predictions, TaskScore& score) {
  if (task.free_text()) {
    score.kind = AnswerKind::kText;
    compare_texts(set.rows, task.scoring == Scoring::kExact, predictions, score);
    if (options.bert_scorer) compare_meanings(*options.bert_scorer, predictions, score);
    return;
  }
  count_answers(task, set.rows, options.lowercase, predictions, score);
  score.chance = chance_rate(task, set.rows);
  score.majority = majority_rate(set.rows);
}

/// Returns the number of distinct questions. Rows with the same question and context count once.
int64_t distinct_questions(std::span<const Row> rows) {
  std::set<std::vector<std::string_view>> questions;
  for (const auto& row : rows) questions.insert(question_of(row));
  return static_cast<int64_t>(questions.size());
}

/// Logs a note once per process, because a task is evaluated at several budgets and rounds.
void warn_once(const std::string& note) {
  static std::set<std::string> logged;
  if (!note.empty() && logged.insert(note).second) log::warning("[evaluate] ", note);
}

/// Returns the mean log-likelihood of the correct answers whose likelihood is known; nothing if there is none.
std::optional<double> mean_log_likelihood(std::span<const Prediction> predictions) {
  double sum = 0, count = 0;
  for (const auto& one : predictions)
    if (one.answer_tokens > 0) sum -= one.nll, ++count;
  return count > 0 ? std::optional(sum / count) : std::nullopt;
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
using OnRows = std::function<void(int64_t done, int64_t rows)>;

/// Returns rows tokenised as for training.
TokenizedRows whole_rows(const CausalLm& model, const Tokenizer& tokenizer, std::span<const Row> rows,
                         const EvaluationOptions& options) {
  const int64_t most = model.spec().max_positions;
  return tokenize_rows(rows, tokenizer,
                       {.form = options.form,
                        .cutoff = options.cutoff > 0 ? std::min(options.cutoff, most) : most,
                        .eos = model.spec().end_of_text});
}

void check_answers_left(const TaskInfo& task, const TokenizedRows& whole) {
  EK_CHECK(!whole.examples.empty(), kData, "task ", task.name, ": no row keeps anything of its answer when it is cut");
}

/// Computes the likelihoods of rows [first, first + count) among the rows whose answer was not truncated, as
/// predictions.
AnsweredBatch likelihoods_of(const CausalLm& model, const ForwardOptions& forward, const std::string& task,
                             std::span<const Example> examples, size_t first) {
  const auto together = examples.subspan(first, rows_together(examples.subspan(first)));
  AnsweredBatch batch{.key = {}, .answers = {}};
  try {
    for (const auto& answer : answer_likelihoods(model, forward, together, first)) {
      auto& one = batch.answers.emplace_back();
      one.nll = -answer.logprob;
      one.answer_tokens = answer.tokens;
    }
  } catch (const Error& error) {
    throw error.with_context(concat("task ", task));
  }
  return batch;
}

void weigh_answers(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                   const TaskInfo& task, std::span<const Row> rows, const EvaluationOptions& options,
                   std::span<Prediction> predictions, TaskScore& score, const OnRows& on_progress) {
  const auto whole = whole_rows(model, tokenizer, rows, options);
  check_answers_left(task, whole);
  std::vector<Prediction> weighed(whole.examples.size());
  double nll = 0;
  for (size_t first = 0; first < weighed.size();) {
    auto batch = get_or_compute(options.journal, options.journal_key, first,
                                [&] { return likelihoods_of(model, forward, task.name, whole.examples, first); });
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

bool is_blank_text(std::string_view text) { return strip(text).empty(); }

/// Returns the reason why a row cannot be scored, or an empty string.
std::string reason_against(const TaskInfo& task, const Row& row) {
  const bool has_question = std::any_of(row.turns.begin(), row.turns.end() - (row.turns.empty() ? 0 : 1),
                                        [](const Turn& turn) { return !is_blank_text(turn.content); });
  if (!has_question && is_blank_text(row.instruction) && is_blank_text(row.input)) return "asks nothing";
  if (task.scoring == Scoring::kNll)
    return is_blank_text(row.turns.empty() ? row.output : row.turns.back().content) ? "has an empty answer" : "";
  if (task.free_text()) {
    const bool none = std::all_of(row.references.begin(), row.references.end(), is_blank_text);
    return none ? "has no reference that says anything" : "";
  }
  const auto allowed = row_answers(task, row);
  if (allowed.empty()) return "has no options";
  if (std::find(allowed.begin(), allowed.end(), row.answer) != allowed.end()) return {};
  return concat("has the answer \"", shown(row.answer), "\", which is none of its options: ", shown(join(allowed)));
}

}  // namespace

void check_test_rows(const TaskInfo& task, std::span<const Row> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto fault = reason_against(task, rows[i]);
    EK_CHECK(fault.empty(), kData, "task ", task.name, ": row ", i, " ", fault);
  }
}

void check_task(const CausalLm& shape, const Tokenizer& tokenizer, const TaskInfo& task, const TaskRows& set,
                const EvaluationOptions& options) {
  EK_CHECK(!set.rows.empty(), kData, "task ", task.name, " has no rows to evaluate");
  check_test_rows(task, set.rows);
  warn_once(set.note);
  if (task.scoring == Scoring::kNll) return check_answers_left(task, whole_rows(shape, tokenizer, set.rows, options));
  check_rows(shape, tokenizer, task, set.rows, options);
}

TaskScore evaluate_task(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, const TaskRows& set, const EvaluationOptions& options,
                        std::vector<Prediction>* predictions, const std::function<void(int64_t, int64_t)>& on_progress,
                        ItemScores* items) {
  const std::span<const Row> rows = set.rows;
  EK_CHECK(!rows.empty(), kData, "task ", task.name, " has no rows to evaluate");
  EK_CHECK(options.batch_size > 0, kConfig, "evaluation batch size is ", options.batch_size, ", allowed: 1 or more");
  check_test_rows(task, rows);
  TaskScore score;
  score.task = task.name;
  score.top_k = forward.router.top_k > 0 ? forward.router.top_k : model.spec().top_k;
  score.rows = static_cast<int64_t>(rows.size());
  score.questions = distinct_questions(rows);
  warn_once(set.note);
  std::vector<Prediction> all(rows.size());
  if (task.scoring == Scoring::kNll) {
    weigh_answers(model, tokenizer, forward, task, rows, options, all, score, on_progress);
  } else {
    const auto key =  // older journals hold answers without likelihoods
        concat(options.journal_key, "; with likelihoods", predictions ? "" : "; outputs as far as they are read");
    auto answers =
        answer_rows(model, tokenizer, forward, task, rows, options, predictions != nullptr, key, on_progress);
    all = std::move(answers.predictions);
    score.context_cut = answers.context_cut;
    score.seconds = answers.seconds;
    const auto start = Clock::now();
    score_answers(task, set, options, all, score);
    score.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  score.log_likelihood = mean_log_likelihood(all);
  if (items) *items = items_of(score.kind, all);
  if (predictions) *predictions = std::move(all);
  return score;
}

}  // namespace evenkeel
