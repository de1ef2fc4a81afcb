#include "scoring/answering.h"

#include <algorithm>

#include "data/option_places.h"
#include "scoring/continuations.h"

namespace evenkeel {
namespace {

constexpr std::string_view kAnswerFormat = "Answer format:";

constexpr std::string_view kResponse = "### Response:", kBlockTitle = "### ";
constexpr std::string_view kAnswerLead = "the correct answer is ";
constexpr std::string_view kBlank = " \t\r\n";

/// Returns the text before the next prompt block, because the model has answered before it. Other templates have no
/// blocks.
std::string first_response(std::string_view text, const TaskInfo& task, PromptTemplate form) {
  const bool has_blocks = form == PromptTemplate::kPaper || form == PromptTemplate::kLlmAdapters;
  return strip(has_blocks ? text.substr(0, text.find(task.free_text() ? kBlockTitle : kResponse)) : text);
}

/// Returns the text before the answer in a row's output, which is the same for all rows of a published task. For other
/// tasks it ends before the first option in the output, whichever option that is, so it does not reveal the correct
/// one.
std::string answer_lead(const Row& row) {
  if (row.options.empty()) return std::string(kAnswerLead);
  const auto& text = row.turns.empty() ? row.output : row.turns.back().content;
  const auto place = first_option(row.options, text);
  return place ? text.substr(0, place->at) : std::string();
}

/// Returns the token ids that follow `prompt_ids` when prompt and answer are tokenised as one text. If a token crosses
/// the border, the answer is tokenised alone.
TokenIds answer_ids(const Prompts& prompts, const std::string& prompt, const TokenIds& prompt_ids,
                    const std::string& text) {
  const auto joined = prompts.encode(prompt + text);
  const auto end = std::mismatch(prompt_ids.begin(), prompt_ids.end(), joined.begin(), joined.end());
  if (end.first == prompt_ids.end()) return TokenIds(end.second, joined.end());
  return prompts.tokenizer().encode(text, /*add_special_tokens=*/false);
}

/// Removes the spaces at the end of a plain prompt. They belong to the first token of the continuation, as in training.
std::string take_gap(std::string& prompt, PromptTemplate form) {
  const auto last = prompt.find_last_not_of(' ');
  if (form != PromptTemplate::kPlain || last == prompt.npos) return {};
  auto gap = prompt.substr(last + 1);
  prompt.resize(last + 1);
  return gap;
}

/// Returns the largest number of tokens of a prompt with context.
int64_t prompt_limit(const ModelSpec& spec, const EvaluationOptions& options) {
  const int64_t most = spec.max_positions - options.max_new_tokens;
  return options.cutoff > 0 ? std::min(options.cutoff, most) : most;
}

/// Rows that run through the model together.
struct Batch {
  std::span<const Row> rows;
  std::vector<TokenIds> prompts;
  std::vector<std::vector<std::string>> answers;
  std::vector<std::vector<TokenIds>> answer_tokens;
  PromptNames names;
  std::vector<bool> is_cut;  // contexts that were truncated
};

/// Reports the first prompt that is too long or that its template rejects, before any row is answered. For a prompt
/// with context the shortest possible length counts.
void check_prompts_fit(const Prompts& prompts, const TaskInfo& task, std::span<const Row> rows, int64_t most) {
  for (size_t i = 0; i < rows.size(); ++i) {
    try {
      auto shortest = rows[i];
      shortest.input.clear();
      const auto prompt = prompts.evaluation_prompt(rows[i].input.empty() ? rows[i] : shortest);
      const auto length = static_cast<int64_t>(prompts.encode(prompt).size());
      EK_CHECK(length > 0 || !rows[i].input.empty(), kData, "the prompt has no tokens");
      EK_CHECK(length <= most, kData, "the prompt has ", length, " tokens, more than the ", most,
               " that the model's positions leave beside an answer");
    } catch (const Error& error) {
      throw error.with_context(concat("task ", task.name, ": row ", i));
    }
  }
}

/// The first accepted answer of free text that says anything, for its likelihood.
std::vector<std::string> first_reference(const Row& row) {
  for (const auto& reference : row.references)
    if (auto text = strip(reference); !text.empty()) return {std::move(text)};
  return {};
}

/// Drops the last row's answers if one is longer than what is generated, so that likelihoods need no more positions and
/// no larger cache than generation does.
void drop_long(int64_t most, Batch& batch) {
  auto& tokens = batch.answer_tokens.back();
  if (std::all_of(tokens.begin(), tokens.end(), [&](const auto& ids) { return std::ssize(ids) <= most; })) return;
  tokens.clear();
  batch.answers.back().clear();
}

/// Tokenises rows [first, first + count).
/// \param limit  largest number of tokens of a prompt with context
Batch tokenize(const Prompts& prompts, const TaskInfo& task, std::span<const Row> all, size_t first,
               const EvaluationOptions& options, int64_t limit) {
  const auto rows = all.subspan(first, std::min(static_cast<size_t>(options.batch_size), all.size() - first));
  Batch batch{.rows = rows,
              .prompts = {},
              .answers = {},
              .answer_tokens = {},
              .names = {concat("task ", task.name, ": row"), static_cast<int64_t>(first)},
              .is_cut = {}};
  for (const auto& row : rows) {
    const auto fitted = prompts.fit_context(row, limit);
    batch.is_cut.push_back(fitted.input.size() < row.input.size());
    auto prompt = prompts.evaluation_prompt(fitted);
    const auto gap = take_gap(prompt, options.form);
    batch.prompts.push_back(prompts.encode(prompt));
    if (!options.likelihood) continue;
    batch.answers.push_back(task.free_text() ? first_reference(row) : row_answers(task, row));
    const auto lead = task.free_text() ? std::string() : answer_lead(row);
    auto& tokens = batch.answer_tokens.emplace_back();
    for (const auto& answer : batch.answers.back())
      tokens.push_back(answer_ids(prompts, prompt, batch.prompts.back(), concat(gap, lead, answer)));
    if (task.free_text()) drop_long(options.max_new_tokens, batch);
  }
  return batch;
}

int64_t new_tokens_of(const Batch& batch, int64_t max_new_tokens) {
  size_t new_tokens = static_cast<size_t>(max_new_tokens);
  for (const auto& answers : batch.answer_tokens)
    for (const auto& ids : answers) new_tokens = std::max(new_tokens, ids.size());
  return static_cast<int64_t>(new_tokens);
}

void rank_answers(const CausalLm& model, const ForwardOptions& forward, PromptRun& run, const Batch& batch,
                  std::span<Prediction> predictions) {
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
void weigh_references(const CausalLm& model, const ForwardOptions& forward, PromptRun& run, const Batch& batch,
                      std::span<Prediction> predictions) {
  const auto scores = continuation_logprobs(model, forward, run, batch.answer_tokens);
  run.known.clear();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].empty()) continue;
    predictions[i].nll = -scores[i][0];
    predictions[i].answer_tokens = std::ssize(batch.answer_tokens[i][0]);
  }
}

bool contains(std::string_view whole, std::string_view part) { return whole.find(part) != whole.npos; }

/// Returns whether no further text can change the extracted answer: both rules find it, and it is not a part of another
/// answer. An option of the row itself counts only when the text after it is known.
bool is_read(const TaskInfo& task, const Row& row, const std::string& output) {
  if (!row.options.empty() || task.free_text()) return false;
  const auto as_is = extract_answer(task, row, output, false);
  if (as_is.empty() || extract_answer(task, row, output, true) != as_is) return false;
  return std::all_of(task.answers.begin(), task.answers.end(),
                     [&](const auto& other) { return other == as_is || !contains(other, as_is); });
}

/// Shared state of one evaluation of a task.
struct Answering {
  const CausalLm& model;
  const Prompts& prompts;
  const ForwardOptions& forward;
  const TaskInfo& task;
  const EvaluationOptions& options;
  std::span<const Row> rows;
  bool whole_outputs;
  std::optional<PromptPrefix> prefix{};

  Batch tokenized(size_t first) const {
    return tokenize(prompts, task, rows, first, options, prompt_limit(model.spec(), options));
  }

  /// Returns the common prefix of the task's first rows, for every batch. Answers therefore do not depend on the row at
  /// which an evaluation started.
  const PromptPrefix& task_prefix() {
    if (!prefix) prefix = run_prefix(model, forward, common_prefix(tokenized(0).prompts), options.cache);
    return *prefix;
  }

  /// Reduces the batch to the prompts that the cache can hold, at least one.
  void fit(Batch& batch) {
    const double most =
        options.cache_gib * 0x1p30 / static_cast<double>(kv_shape(model, options.cache, forward.compute).token_bytes());
    const int64_t new_tokens =
        new_tokens_of(batch, options.max_new_tokens) * (options.decode == Decode::kBeam4 ? 4 : 1);
    double tokens = 0;
    size_t count = 0;
    for (; count < batch.prompts.size(); ++count) {
      tokens += static_cast<double>(static_cast<int64_t>(batch.prompts[count].size()) + new_tokens);
      if (count > 0 && tokens > most) break;
    }
    batch.rows = batch.rows.first(count);
    batch.prompts.resize(count);
    batch.is_cut.resize(count);
    batch.answers.resize(std::min(count, batch.answers.size()));
    batch.answer_tokens.resize(batch.answers.size());
  }

  std::string output_of(const TokenIds& ids) const {
    return first_response(prompts.tokenizer().decode(ids, true), task, options.form);
  }

  std::vector<Prediction> answer(const Batch& batch) {
    std::vector<Prediction> predictions(batch.rows.size());
    auto run = run_prompts(model, forward, batch.prompts,
                           {.max_new_tokens = new_tokens_of(batch, options.max_new_tokens),
                            .names = batch.names,
                            .cache = options.cache,
                            .prefix = &task_prefix()});
    if (!batch.answers.empty())
      (task.free_text() ? weigh_references : rank_answers)(model, forward, run, batch, predictions);
    GenerationOptions generation{.max_new_tokens = options.max_new_tokens,
                                 .beams = options.decode == Decode::kBeam4 ? 4 : 1,
                                 .stops = prompts.stops()};
    if (!whole_outputs)
      generation.is_enough = [&](size_t i, const TokenIds& ids) {
        return is_read(task, batch.rows[i], output_of(ids));
      };
    const auto outputs = generate(model, forward, std::move(run), generation);
    for (size_t i = 0; i < outputs.size(); ++i) {
      predictions[i].output = output_of(outputs[i]);
      predictions[i].gold = batch.rows[i].answer;
    }
    return predictions;
  }

  /// Answers the batch that begins with row `first`.
  AnsweredBatch answer_from(size_t first) {
    auto batch = tokenized(first);
    fit(batch);
    AnsweredBatch answered{.key = {}, .answers = answer(batch)};
    answered.context_cut = std::count(batch.is_cut.begin(), batch.is_cut.end(), true);
    return answered;
  }
};

/// Length of the longest prompt in tokens, and a bound for the tokens after a prompt.
struct Lengths {
  int64_t prompt = 0, new_tokens = 0;
};

/// Returns an upper bound for the tokens of a text with any tokenizer.
int64_t most_tokens(std::string_view text) { return 16 * static_cast<int64_t>(text.size()) + 16; }

Lengths longest(const Prompts& prompts, const TaskInfo& task, std::span<const Row> rows,
                const EvaluationOptions& options, int64_t limit) {
  Lengths most{.new_tokens = options.max_new_tokens};
  for (size_t i = 0; i < rows.size(); ++i) {
    auto prompt = prompts.evaluation_prompt(prompts.fit_context(rows[i], limit));
    take_gap(prompt, options.form);
    const auto tokens = static_cast<int64_t>(prompts.encode(prompt).size());
    EK_CHECK(tokens > 0, kData, "task ", task.name, ": row ", i, " has no tokens");
    most.prompt = std::max(most.prompt, tokens);
    if (!options.likelihood || task.free_text()) continue;
    for (const auto& answer : row_answers(task, rows[i]))
      most.new_tokens = std::max(most.new_tokens, most_tokens(answer_lead(rows[i]) + answer));
  }
  return most;
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

std::string strip(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

TaskAnswers answer_rows(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, std::span<const Row> rows, const EvaluationOptions& options,
                        bool whole_outputs, const std::string& key,
                        const std::function<void(int64_t, int64_t)>& on_progress) {
  const Prompts prompts(tokenizer, options.form);
  check_prompts_fit(prompts, task, rows, model.spec().max_positions - options.max_new_tokens);
  Answering answering{model, prompts, forward, task, options, rows, whole_outputs};
  TaskAnswers all{std::vector<Prediction>(rows.size())};
  for (size_t first = 0; first < rows.size();) {
    auto batch = get_or_compute(options.journal, key, first, [&] { return answering.answer_from(first); });
    first += hand_over(batch, std::span(all.predictions).subspan(first));
    all.context_cut += batch.context_cut;
    all.seconds += batch.seconds;
    if (on_progress) on_progress(static_cast<int64_t>(first), static_cast<int64_t>(rows.size()));
  }
  return all;
}

/// Rows are tokenised in batches, as in answer_rows(), only if some prompt is nearly as long as the model's positions.
void check_rows(const CausalLm& shape, const Tokenizer& tokenizer, const TaskInfo& task, std::span<const Row> rows,
                const EvaluationOptions& options) {
  const Prompts prompts(tokenizer, options.form);
  const auto most = longest(prompts, task, rows, options, prompt_limit(shape.spec(), options));
  if (most.prompt + most.new_tokens <= shape.spec().max_positions) return;
  Answering answering{shape, prompts, {}, task, options, rows, /*whole_outputs=*/true};
  for (size_t first = 0; first < rows.size();) {
    auto batch = answering.tokenized(first);
    answering.fit(batch);
    check_prompts(shape.spec(), batch.prompts, new_tokens_of(batch, options.max_new_tokens), batch.names);
    first += batch.rows.size();
  }
}

}  // namespace evenkeel
