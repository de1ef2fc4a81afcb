#include "scoring/answering.h"

#include <algorithm>
#include <utility>

#include "data/text_metrics.h"
#include "scoring/continuations.h"

namespace evenkeel::scoring {
namespace {

constexpr std::string_view kResponse = "### Response:", kBlockTitle = "### ";

/// Returns the text before the next prompt block, because the model has answered before it. Other templates have no
/// blocks.
std::string first_response(std::string_view text, const data::TaskInfo& task, data::PromptTemplate form) {
  const bool has_blocks = form == data::PromptTemplate::kPaper || form == data::PromptTemplate::kLlmAdapters;
  return data::strip(has_blocks ? text.substr(0, text.find(task.free_text() ? kBlockTitle : kResponse)) : text);
}

/// Returns the output without what the chat template writes before an answer, if it begins with it. Blanks at the
/// beginning and at the end do not count.
std::string_view without_text_before(std::string_view output, std::string_view before) {
  const auto without_blanks = [](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  };
  const auto said = without_blanks(output), expected = without_blanks(before);
  if (said.starts_with(expected)) return said.substr(expected.size());
  return data::strip(said) == data::strip(expected) ? std::string_view() : output;
}

/// Rows that run through the model together.
struct Batch {
  std::span<const data::Row> rows;
  std::vector<TokenIds> prompts;
  std::vector<std::string> before_answers;  // PreparedTask::before_answer()
  std::vector<std::vector<std::string>> answers;
  std::vector<std::vector<TokenIds>> answer_tokens;
  std::vector<int64_t> new_tokens;  // largest number that may follow each prompt
  PromptNames names;
  std::vector<bool> is_cut;  // contexts that were truncated
};

/// Returns the largest number of tokens that may follow a prompt: as many as are generated, or its longest answer.
int64_t longest_of(std::span<const TokenIds> answers, int64_t max_new_tokens) {
  int64_t longest = max_new_tokens;
  for (const auto& ids : answers) longest = std::max<int64_t>(longest, std::ssize(ids));
  return longest;
}

/// Returns the rows from `first` on, at most options.batch_size.
Batch batch_of(const PreparedTask& task, size_t first, const EvaluationOptions& options) {
  const size_t end = std::min(first + static_cast<size_t>(options.batch_size), task.rows().size());
  Batch batch{.rows = task.rows().subspan(first, end - first),
              .prompts = {},
              .before_answers = {},
              .answers = {},
              .answer_tokens = {},
              .new_tokens = {},
              .names = {concat("task ", task.task().name, ": row")},
              .is_cut = {}};
  for (size_t row = first; row < end; ++row) {
    batch.prompts.push_back(task.prompt(row));
    batch.before_answers.push_back(task.before_answer(row));
    batch.is_cut.push_back(task.is_context_cut(row));
    batch.names.numbers.push_back(task.number(row));
    auto tokens = task.weighs_answers() ? task.answer_tokens(row) : std::vector<TokenIds>();
    batch.new_tokens.push_back(longest_of(tokens, options.max_new_tokens));
    if (!task.weighs_answers()) continue;
    batch.answers.push_back(task.answers(row));
    batch.answer_tokens.push_back(std::move(tokens));
  }
  return batch;
}

void rank_answers(const models::CausalLm& model, const models::ForwardOptions& forward, PromptRun& run,
                  const Batch& batch, std::span<Prediction> predictions) {
  const auto scores = continuation_logprobs(model, forward, run, batch.answer_tokens);
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto& answers = batch.answers[i];
    predictions[i].ranked = answers[std::max_element(scores[i].begin(), scores[i].end()) - scores[i].begin()];
    const auto right = std::find(answers.begin(), answers.end(), batch.rows[i].answer) - answers.begin();
    predictions[i].nll = -scores[i].at(right);
    predictions[i].answer_tokens = std::ssize(batch.answer_tokens[i][right]);
  }
}

/// Computes the likelihood of the references of free text. Generation does not use what these passes found, so that
/// outputs are those without them.
void weigh_references(const models::CausalLm& model, const models::ForwardOptions& forward, PromptRun& run,
                      const Batch& batch, std::span<Prediction> predictions) {
  const auto scores = continuation_logprobs(model, forward, run, batch.answer_tokens);
  run.known.clear();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].empty()) continue;
    predictions[i].nll = -scores[i][0];
    predictions[i].answer_tokens = std::ssize(batch.answer_tokens[i][0]);
  }
}

bool contains(std::string_view whole, std::string_view part) { return whole.find(part) != whole.npos; }

/// Reduces the batch to the prompts that the cache can hold, at least one.
void fit(Batch& batch, const models::CausalLm& model, const nn::Compute& compute, const EvaluationOptions& options) {
  const auto shape = kv_shape(model, options.cache, compute);
  const double most = options.cache_gib * 0x1p30 / static_cast<double>(shape.token_bytes());
  const int64_t longest = *std::max_element(batch.new_tokens.begin(), batch.new_tokens.end());
  const int64_t beams = options.decode == Decode::kBeam4 ? 4 : 1;
  PromptSizes sizes;
  size_t count = 0;
  for (; count < batch.prompts.size(); ++count) {
    sizes.add(std::ssize(batch.prompts[count]));
    const auto tokens = cached_tokens(sizes, longest, beams, shape.device, compute.engine);
    if (count > 0 && static_cast<double>(tokens) > most) break;
  }
  batch.rows = batch.rows.first(count);
  batch.prompts.resize(count);
  batch.new_tokens.resize(count);
  batch.is_cut.resize(count);
  batch.answers.resize(std::min(count, batch.answers.size()));
  batch.answer_tokens.resize(batch.answers.size());
}

/// Frees the places of earlier batches unless they fit beside the prompts of this one.
void free_places_for(const Batch& batch, const models::CausalLm& model, const models::ForwardOptions& forward,
                     const EvaluationOptions& options) {
  if (!forward.graphs) return;
  int64_t tokens = 0;
  for (const auto& prompt : batch.prompts) tokens += std::ssize(prompt);
  auto& arena = forward.graphs->arena();
  const int64_t bytes = arena.bytes() + tokens * kv_shape(model, options.cache, forward.compute).token_bytes();
  if (static_cast<double>(bytes) > options.cache_gib * 0x1p30) arena = nn::KvArena();
}

/// Shared state of one evaluation of a task.
struct Answering {
  const models::CausalLm& model;
  const tokenizer::Tokenizer& tokenizer;
  const models::ForwardOptions& forward;
  const PreparedTask& task;
  const EvaluationOptions& options;
  bool whole_outputs;
  std::optional<PromptPrefix> prefix{};

  /// Returns the common beginning of the task's first rows, for every batch. Answers therefore do not depend on the row
  /// at which an evaluation started.
  const PromptPrefix& task_prefix() {
    if (!prefix) prefix = run_prefix(model, forward, common_prefix(batch_of(task, 0, options).prompts), options.cache);
    return *prefix;
  }

  /// \param before  PreparedTask::before_answer()
  std::string output_of(const TokenIds& ids, const std::string& before) const {
    const auto text = tokenizer.decode(ids, true);
    return first_response(without_text_before(text, before), task.task(), options.form);
  }

  std::vector<Prediction> answer(const Batch& batch) {
    std::vector<Prediction> predictions(batch.rows.size());
    const auto& shared = task_prefix();
    auto run =
        run_prompts(model, forward, batch.prompts,
                    {.new_tokens = batch.new_tokens, .names = batch.names, .cache = options.cache, .prefix = &shared});
    if (!batch.answers.empty())
      (task.task().free_text() ? weigh_references : rank_answers)(model, forward, run, batch, predictions);
    GenerationOptions generation{.max_new_tokens = options.max_new_tokens,
                                 .beams = options.decode == Decode::kBeam4 ? 4 : 1,
                                 .stops = task.stops()};
    if (!whole_outputs)
      generation.is_enough = [&](size_t i, const TokenIds& ids) {
        const auto& before = batch.before_answers[i];
        const auto output = output_of(ids, before);
        const bool may_become_before = data::strip(before).starts_with(output);
        return !may_become_before && is_read(task.task(), batch.rows[i], output);
      };
    const auto outputs = generate(model, forward, std::move(run), generation);
    for (size_t i = 0; i < outputs.size(); ++i) {
      predictions[i].output = output_of(outputs[i], batch.before_answers[i]);
      predictions[i].gold = batch.rows[i].answer;
    }
    return predictions;
  }

  /// Answers the batch that begins with row `first`.
  AnsweredBatch answer_from(size_t first) {
    auto batch = batch_of(task, first, options);
    fit(batch, model, forward.compute, options);
    free_places_for(batch, model, forward, options);
    AnsweredBatch answered{.key = {}, .answers = answer(batch)};
    answered.context_cut = std::count(batch.is_cut.begin(), batch.is_cut.end(), true);
    return answered;
  }
};

}  // namespace

bool is_read(const data::TaskInfo& task, const data::Row& row, const std::string& output) {
  if (!row.options.empty() || task.free_text()) return false;
  const auto as_is = data::extract_answer(task, row, output, false);
  if (as_is.empty() || data::extract_answer(task, row, output, true) != as_is) return false;
  return std::all_of(task.answers.begin(), task.answers.end(),
                     [&](const auto& other) { return other == as_is || !contains(other, as_is); });
}

TaskAnswers answer_rows(const EvaluatedModel& evaluated, const PreparedTask& task, const EvaluationOptions& options,
                        const AnswerSettings& settings, const OnRows& on_progress) {
  const auto& [model, tokenizer, given] = evaluated;
  const auto forward = model.prepared(given);
  Answering answering{model, tokenizer, forward, task, options, settings.whole_outputs};
  const size_t rows = task.rows().size();
  TaskAnswers all{std::vector<Prediction>(rows)};
  for (size_t first = 0; first < rows;) {
    auto batch = get_or_compute(options.journal, settings.key, first, [&] { return answering.answer_from(first); });
    first += hand_over(batch, std::span(all.predictions).subspan(first));
    all.context_cut += batch.context_cut;
    all.seconds += batch.seconds;
    if (on_progress) on_progress(static_cast<int64_t>(first), static_cast<int64_t>(rows));
  }
  return all;
}

void check_prompts(const models::CausalLm& shape, const PreparedTask& task, const EvaluationOptions& options) {
  for (size_t first = 0; first < task.rows().size();) {
    auto batch = batch_of(task, first, options);
    fit(batch, shape, {}, options);
    check_prompts(shape.spec(), batch.prompts, batch.new_tokens, batch.names);
    first += batch.rows.size();
  }
}

}  // namespace evenkeel::scoring
