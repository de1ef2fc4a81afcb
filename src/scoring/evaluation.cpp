#include "scoring/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/files.h"
#include "base/log.h"
#include "data/text_metrics.h"
#include "scoring/answer_likelihood.h"
#include "scoring/bert_score.h"
#include "scoring/generation.h"

namespace evenkeel {
namespace {

constexpr std::string_view kAnswerFormat = "Answer format:";
constexpr std::string_view kResponse = "### Response:", kBlockTitle = "### ";
constexpr std::string_view kAnswerLead = "the correct answer is ";
constexpr std::string_view kBlank = " \t\r\n";

std::string strip(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

/// A model that goes on to write another block of the prompt has answered before it. Other templates have no blocks.
std::string first_response(std::string_view text, const TaskInfo& task, PromptTemplate form) {
  const bool has_blocks = form == PromptTemplate::kPaper || form == PromptTemplate::kLlmAdapters;
  return strip(has_blocks ? text.substr(0, text.find(task.free_text() ? kBlockTitle : kResponse)) : text);
}

/// What stands before the answer in a row's output; rows of published tasks all have the same.
std::string answer_lead(const Row& row) {
  if (row.options.empty()) return std::string(kAnswerLead);
  const auto at = row.output.rfind(row.answer);
  return at == row.output.npos ? std::string() : row.output.substr(0, at);
}

/// Ids that follow `prompt_ids` when prompt and answer are one text. A tokenizer that joins across the border leaves no
/// such tail; the answer is then tokenised alone.
TokenIds answer_ids(const Prompts& prompts, const std::string& prompt, const TokenIds& prompt_ids,
                    const std::string& text) {
  const auto joined = prompts.encode(prompt + text);
  const auto end = std::mismatch(prompt_ids.begin(), prompt_ids.end(), joined.begin(), joined.end());
  if (end.first == prompt_ids.end()) return TokenIds(end.second, joined.end());
  return prompts.tokenizer().encode(text, /*add_special_tokens=*/false);
}

/// Takes the spaces off a plain prompt's end: they go into the first token of what follows, as they did in training.
std::string take_gap(std::string& prompt, PromptTemplate form) {
  const auto last = prompt.find_last_not_of(' ');
  if (form != PromptTemplate::kPlain || last == prompt.npos) return {};
  auto gap = prompt.substr(last + 1);
  prompt.resize(last + 1);
  return gap;
}

/// Rows that go through the model together.
struct Batch {
  std::span<const Row> rows;
  std::vector<TokenIds> prompts;
  std::vector<std::vector<std::string>> answers;
  std::vector<std::vector<TokenIds>> answer_tokens;
  PromptNames names;
  int64_t context_cut = 0;
};

/// Rows [first, first + count). \param limit  tokens that a prompt with context may take.
Batch tokenize(const Prompts& prompts, const TaskInfo& task, std::span<const Row> all, size_t first,
               const EvaluationOptions& options, int64_t limit) {
  const auto rows = all.subspan(first, std::min(static_cast<size_t>(options.batch_size), all.size() - first));
  Batch batch{.rows = rows,
              .prompts = {},
              .answers = {},
              .answer_tokens = {},
              .names = {concat("task ", task.name, ": row"), static_cast<int64_t>(first)}};
  for (const auto& row : rows) {
    const auto fitted = prompts.fit_context(row, limit);
    batch.context_cut += fitted.input.size() < row.input.size();
    auto prompt = prompts.evaluation_prompt(fitted);
    const auto gap = take_gap(prompt, options.form);
    batch.prompts.push_back(prompts.encode(prompt));
    if (!options.likelihood || task.free_text()) continue;
    batch.answers.push_back(row_answers(task, row));
    auto& tokens = batch.answer_tokens.emplace_back();
    for (const auto& answer : batch.answers.back())
      tokens.push_back(answer_ids(prompts, prompt, batch.prompts.back(), concat(gap, answer_lead(row), answer)));
  }
  return batch;
}

int64_t room_of(const Batch& batch, int64_t max_new_tokens) {
  size_t room = static_cast<size_t>(max_new_tokens);
  for (const auto& answers : batch.answer_tokens)
    for (const auto& ids : answers) room = std::max(room, ids.size());
  return static_cast<int64_t>(room);
}

void rank_answers(const CausalLm& model, const ForwardOptions& forward, PromptRun& run, const Batch& batch,
                  std::span<Prediction> predictions) {
  const auto scores = continuation_logprobs(model, forward, run, batch.answer_tokens);
  for (size_t i = 0; i < scores.size(); ++i)
    predictions[i].ranked = batch.answers[i][std::max_element(scores[i].begin(), scores[i].end()) - scores[i].begin()];
}

void answer_batch(const CausalLm& model, const Prompts& prompts, const ForwardOptions& forward, const TaskInfo& task,
                  const Batch& batch, const EvaluationOptions& options, std::span<Prediction> predictions) {
  auto run = run_prompts(model, forward, batch.prompts, room_of(batch, options.max_new_tokens), batch.names);
  if (!batch.answers.empty()) rank_answers(model, forward, run, batch, predictions);
  const auto outputs = generate(model, forward, std::move(run),
                                {.max_new_tokens = options.max_new_tokens,
                                 .beams = options.decode == Decode::kBeam4 ? 4 : 1,
                                 .stops = prompts.stops()});
  for (size_t i = 0; i < outputs.size(); ++i) {
    predictions[i].output = first_response(prompts.tokenizer().decode(outputs[i], true), task, options.form);
    predictions[i].gold = batch.rows[i].answer;
  }
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

void count_answers(const TaskInfo& task, std::span<const Row> rows, bool lowercase, std::span<Prediction> predictions,
                   TaskScore& score) {
  int64_t cased = 0, lower = 0, valid = 0, ranked = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    auto& one = predictions[i];
    const auto as_is = extract_answer(task, rows[i], one.output, false);
    const auto lower_case = extract_answer(task, rows[i], one.output, true);
    one.extracted = lowercase ? lower_case : as_is;
    cased += as_is == one.gold;
    lower += lower_case == one.gold;
    valid += !one.extracted.empty();
    ranked += one.ranked == one.gold;
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
                     [&](const std::string& reference) { return strip(reference) == output; });
}

/// \param to_the_letter  what an exact match is
void compare_texts(std::span<const Row> rows, bool to_the_letter, std::span<Prediction> predictions, TaskScore& score) {
  const double weight = 1.0 / static_cast<double>(predictions.size());
  for (size_t i = 0; i < predictions.size(); ++i) {
    auto& one = predictions[i];
    one.references = rows[i].references;
    const auto match = best_match(one.output, one.references);
    one.exact_match = to_the_letter ? is_said(one.output, one.references) : match.exact_match;
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

/// Rows that ask the same in the same context count once.
int64_t distinct_questions(std::span<const Row> rows) {
  std::set<std::vector<std::string_view>> questions;
  for (const auto& row : rows) questions.insert(question_of(row));
  return static_cast<int64_t>(questions.size());
}

/// A task is evaluated at several budgets and after several rounds: what is to be said of its rows is said once.
void warn_once(const std::string& note) {
  static std::set<std::string> said;
  if (!note.empty() && said.insert(note).second) log::warning("[evaluate] ", note);
}

/// Tokens that a prompt with context may take.
int64_t prompt_limit(const ModelSpec& spec, const EvaluationOptions& options) {
  const int64_t most = spec.max_positions - options.max_new_tokens;
  return options.cutoff > 0 ? std::min(options.cutoff, most) : most;
}

using OnRows = std::function<void(int64_t done, int64_t rows)>;

void answer_rows(const CausalLm& model, const Prompts& prompts, const ForwardOptions& forward, const TaskInfo& task,
                 std::span<const Row> rows, const EvaluationOptions& options, std::span<Prediction> predictions,
                 TaskScore& score, const OnRows& on_progress) {
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(options.batch_size)) {
    const auto batch = tokenize(prompts, task, rows, first, options, prompt_limit(model.spec(), options));
    const size_t count = batch.rows.size();
    answer_batch(model, prompts, forward, task, batch, options, predictions.subspan(first, count));
    score.context_cut += batch.context_cut;
    if (on_progress) on_progress(static_cast<int64_t>(first + count), static_cast<int64_t>(rows.size()));
  }
}

/// Rows as training sees them.
TokenizedRows whole_rows(const CausalLm& model, const Tokenizer& tokenizer, std::span<const Row> rows,
                         const EvaluationOptions& options) {
  const int64_t most = model.spec().max_positions;
  return tokenize_rows(rows, tokenizer,
                       {.form = options.form,
                        .cutoff = options.cutoff > 0 ? std::min(options.cutoff, most) : most,
                        .eos = model.spec().eos});
}

void weigh_answers(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                   const TaskInfo& task, std::span<const Row> rows, const EvaluationOptions& options,
                   std::span<Prediction> predictions, TaskScore& score, const OnRows& on_progress) {
  const auto whole = whole_rows(model, tokenizer, rows, options);
  EK_CHECK(!whole.examples.empty(), kData, "task ", task.name, ": no row keeps anything of its answer when it is cut");
  double logprob = 0;
  const auto on_row = [&](size_t index, const AnswerLikelihood& answer) {
    auto& one = predictions[static_cast<size_t>(whole.rows[index])];
    one.nll = -answer.logprob;
    one.answer_tokens = answer.tokens;
    logprob += answer.logprob;
    score.answer_tokens += answer.tokens;
    if (on_progress) on_progress(whole.rows[index] + 1, static_cast<int64_t>(rows.size()));
  };
  try {
    answer_likelihoods(model, forward, whole.examples, on_row);
  } catch (const Error& error) {
    throw error.with_context(concat("task ", task.name));
  }
  for (size_t i = 0; i < rows.size(); ++i) predictions[i].gold = rows[i].answer;
  score.kind = AnswerKind::kLikelihood;
  score.cut = whole.cut;
  score.nll = -logprob / static_cast<double>(score.answer_tokens);
  score.perplexity = std::exp(score.nll);
}

}  // namespace

std::vector<std::string> row_answers(const TaskInfo& task, const Row& row) {
  if (!row.options.empty()) return row.options;
  const std::string_view text = row.instruction;
  std::vector<std::string> answers;
  if (const auto at = text.rfind(kAnswerFormat); at != text.npos) {
    auto rest = text.substr(at + kAnswerFormat.size());
    rest = rest.substr(0, rest.find('\n'));
    for (size_t cut = 0; cut != rest.npos && !rest.empty();
         rest.remove_prefix(cut == rest.npos ? rest.size() : cut + 1)) {
      cut = rest.find('/');
      if (auto answer = strip(rest.substr(0, cut)); !answer.empty()) answers.push_back(std::move(answer));
    }
  }
  if (answers.empty()) answers.assign(task.answers.begin(), task.answers.end());
  return answers;
}

TaskScore evaluate_task(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, const TaskRows& set, const EvaluationOptions& options,
                        std::vector<Prediction>* predictions,
                        const std::function<void(int64_t, int64_t)>& on_progress) {
  const std::span<const Row> rows = set.rows;
  EK_CHECK(!rows.empty(), kData, "task ", task.name, " has no rows to evaluate");
  EK_CHECK(options.batch_size > 0, kConfig, "evaluation batch size is ", options.batch_size, ", allowed: 1 or more");
  const auto start = std::chrono::steady_clock::now();
  TaskScore score;
  score.task = task.name;
  score.top_k = forward.router.top_k > 0 ? forward.router.top_k : model.spec().top_k;
  score.rows = static_cast<int64_t>(rows.size());
  score.questions = distinct_questions(rows);
  warn_once(set.note);
  std::vector<Prediction> all(rows.size());
  if (task.scoring == Scoring::kNll)
    weigh_answers(model, tokenizer, forward, task, rows, options, all, score, on_progress);
  else
    answer_rows(model, Prompts(tokenizer, options.form), forward, task, rows, options, all, score, on_progress);
  check_mapped_files();
  if (task.scoring != Scoring::kNll) score_answers(task, set, options, all, score);
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (predictions) *predictions = std::move(all);
  return score;
}

}  // namespace evenkeel
