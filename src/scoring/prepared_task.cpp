#include "scoring/prepared_task.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "data/option_places.h"
#include "data/text_metrics.h"

namespace evenkeel::scoring {
namespace {

constexpr std::string_view kAnswerLead = "the correct answer is ";

/// Logs a note once per process, because a task is prepared for several clients.
void warn_once(const std::string& note) {
  static std::set<std::string> logged;
  if (!note.empty() && logged.insert(note).second) log::warning("[evaluate] ", note);
}

/// Counts different questions. Texts that ask nothing differ by what they say.
int64_t distinct_questions(std::span<const data::Row> rows) {
  std::set<std::vector<std::string_view>> questions;
  for (const auto& row : rows) {
    auto question = data::question_of(row);
    if (std::all_of(question.begin(), question.end(), [](std::string_view part) { return part.empty(); }))
      question.push_back(row.output);
    questions.insert(std::move(question));
  }
  return static_cast<int64_t>(questions.size());
}

/// Returns the text before the answer in a row's output, which is the same for all rows of a published task. For other
/// tasks it ends before the first option in the output, whichever option that is, so it does not reveal the correct
/// one.
std::string answer_lead(const data::Row& row) {
  if (row.options.empty()) return std::string(kAnswerLead);
  const auto& text = row.turns.empty() ? row.output : row.turns.back().content;
  const auto place = data::first_option(row.options, text);
  return place ? text.substr(0, place->at) : std::string();
}

/// Returns the token ids that follow `prompt_ids` when prompt and answer are tokenised as one text. If a token crosses
/// the border, the answer is tokenised alone.
std::vector<int64_t> answer_ids(const data::Prompts& prompts, const std::string& prompt,
                                std::span<const int64_t> prompt_ids, const std::string& text) {
  const auto joined = prompts.encode(prompt + text);
  const auto end = std::mismatch(prompt_ids.begin(), prompt_ids.end(), joined.begin(), joined.end());
  if (end.first == prompt_ids.end()) return {end.second, joined.end()};
  return prompts.tokenizer().encode(text, /*add_special_tokens=*/false);
}

/// Returns the first accepted answer of free text that says anything, for its likelihood.
std::vector<std::string> first_reference(const data::Row& row) {
  for (const auto& reference : row.references)
    if (auto text = data::strip(reference); !text.empty()) return {std::move(text)};
  return {};
}

/// Removes the spaces at the end of a plain prompt. They belong to the first token of the continuation, as in training.
std::string take_gap(std::string& prompt, data::PromptTemplate form) {
  const auto last = prompt.find_last_not_of(' ');
  if (form != data::PromptTemplate::kPlain || last == prompt.npos) return {};
  auto gap = prompt.substr(last + 1);
  prompt.resize(last + 1);
  return gap;
}

/// \param most  the largest number of tokens that leaves room for an answer
void check_length(const std::vector<int64_t>& prompt, int64_t most) {
  EK_CHECK(static_cast<int64_t>(prompt.size()) <= most, kData, "the prompt has ", prompt.size(),
           " tokens, more than the ", std::max<int64_t>(0, most),
           " that the model's positions leave beside its longest answer");
}

/// Returns the row with as much of its context as fits. \throws kData when its prompt does not even fit without one.
data::Row fitted_row(const data::Prompts& prompts, const data::Row& row, int64_t cutoff, int64_t most) {
  if (row.input.empty()) return row;
  auto shortest = row;
  shortest.input.clear();
  check_length(prompts.encode(prompts.evaluation_prompt(shortest)), most);
  return prompts.fit_context(row, cutoff > 0 ? std::min(cutoff, most) : most);
}

/// Returns where the row is from: file and line, or its index.
std::string place_of(const data::Row& row, size_t index) {
  return row.origin.empty() ? concat("row ", index) : row.origin;
}

/// Returns the message without the kind "[data]" in front.
std::string without_kind(const Error& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(text.find("] ") + 2));
}

bool is_blank_text(std::string_view text) { return data::strip(text).empty(); }

/// Returns why a row cannot be scored; empty if it can.
std::string fault_of(const data::TaskInfo& task, const data::Row& row) {
  if (task.scoring == data::Scoring::kNll)
    return is_blank_text(row.turns.empty() ? row.output : row.turns.back().content) ? "has an empty answer" : "";
  const bool asked = std::any_of(row.turns.begin(), row.turns.end() - (row.turns.empty() ? 0 : 1),
                                 [](const data::Turn& turn) { return !is_blank_text(turn.content); });
  if (!asked && is_blank_text(row.instruction) && is_blank_text(row.input)) return "asks nothing";
  if (task.free_text()) {
    const bool none = std::all_of(row.references.begin(), row.references.end(), is_blank_text);
    return none ? "has no reference that says anything" : "";
  }
  const auto allowed = data::row_answers(task, row);
  if (allowed.empty()) return "has no options";
  if (std::find(allowed.begin(), allowed.end(), row.answer) != allowed.end()) return {};
  return concat("has the answer \"", shown(row.answer), "\", which is none of its options: ", shown(join(allowed)));
}

/// Returns the fields of a row that scores are computed from, its place, and the question as instruction.
data::Row scored_part(data::Row row) {
  data::Row part;
  part.instruction = data::question_text(row);
  part.place = std::move(row.place);
  part.answer = std::move(row.answer);
  part.options = std::move(row.options);
  part.references = std::move(row.references);
  return part;
}

size_t bytes_of(std::span<const std::string> texts) {
  size_t bytes = 0;
  for (const auto& text : texts) bytes += sizeof text + text.capacity();
  return bytes;
}

/// What a task asks its rows with.
struct Asking {
  const data::TaskInfo& task;
  const EvaluationOptions& options;
  const data::Prompts& prompts;
};

/// Returns the tokens that the longest answer takes.
int64_t longest_answer(const PreparedRow& row) {
  int64_t longest = 0;
  for (const auto& ids : row.answer_tokens) longest = std::max<int64_t>(longest, std::ssize(ids));
  return longest;
}

/// Adds the answers that are scored by log-likelihood. Free text has one answer, its first reference, or none if that
/// is longer than what is generated: likelihoods then need no more positions and no larger cache than generation does.
/// \param gap  what take_gap() took from the prompt
void add_answers(const Asking& asking, const data::Row& row, const std::string& prompt, const std::string& gap,
                 PreparedRow& prepared) {
  const bool is_free = asking.task.free_text();
  const auto lead = is_free ? std::string() : answer_lead(row);
  for (auto& answer : is_free ? first_reference(row) : data::row_answers(asking.task, row)) {
    auto ids = answer_ids(asking.prompts, prompt, prepared.prompt, concat(gap, lead, answer));
    if (is_free && std::ssize(ids) > asking.options.max_new_tokens) return;
    prepared.answers.push_back(std::move(answer));
    prepared.answer_tokens.push_back(std::move(ids));
  }
}

/// Tokenises a row. \param most  the largest number of tokens of its prompt
PreparedRow prepared_within(const Asking& asking, const data::Row& row, int64_t most) {
  const auto& [task, options, prompts] = asking;
  const auto fitted = fitted_row(prompts, row, options.cutoff, most);
  auto prompt = prompts.evaluation_prompt(fitted);
  PreparedRow prepared{.prompt = prompts.encode(prompt), .is_context_cut = fitted.input.size() < row.input.size()};
  check_length(prepared.prompt, most);
  const auto gap = take_gap(prompt, options.form);
  if (!gap.empty()) prepared.prompt = prompts.encode(prompt);
  EK_CHECK(!prepared.prompt.empty(), kData, "the prompt has no tokens");
  if (options.likelihood) add_answers(asking, row, prompt, gap, prepared);
  return prepared;
}

/// Tokenises a row so that what is generated and each of its own answers fit after its prompt. The answers are known
/// only with their prompt, because a token may cross the border.
PreparedRow prepared_row(const Asking& asking, const data::Row& row, int64_t positions) {
  for (int64_t room = asking.options.max_new_tokens;;) {
    auto prepared = prepared_within(asking, row, positions - room);
    const int64_t longest = longest_answer(prepared);
    if (longest <= room || std::ssize(prepared.prompt) + longest <= positions) return prepared;
    room = longest;
  }
}

}  // namespace

void check_test_rows(const data::TaskInfo& task, std::span<const data::Row> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto fault = fault_of(task, rows[i]);
    EK_CHECK(fault.empty(), kData, "task ", task.name, ": ", place_of(rows[i], i), " ", fault);
  }
}

void TokenLists::add(std::span<const int64_t> ids) {
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ends_.push_back(ids_.size());
}

std::vector<int64_t> TokenLists::at(size_t i) const {
  EK_CHECK(i < ends_.size(), kInternal, "token list ", i, " of ", ends_.size());
  const auto begin = i == 0 ? 0 : ends_[i - 1];
  return {ids_.begin() + static_cast<std::ptrdiff_t>(begin), ids_.begin() + static_cast<std::ptrdiff_t>(ends_[i])};
}

PreparedTask::PreparedTask(data::TaskInfo task, data::TaskRows set, const tokenizer::Tokenizer& tokenizer,
                           const models::ModelSpec& model, const EvaluationOptions& options)
    : task_(std::move(task)), options_(options) {
  EK_CHECK(!set.rows.empty(), kData, "task ", task_.name, " has no rows to evaluate");
  check_test_rows(task_, set.rows);
  warn_once(set.note);
  if (task_.scoring == data::Scoring::kNll)
    add_examples(set.rows, tokenizer, model);
  else
    add_prompts(set.rows, tokenizer, model.max_positions);
  questions_ = distinct_questions(set.rows);
  chance_ = data::chance_rate(task_, set.rows);
  for (auto& row : set.rows) rows_.push_back(scored_part(std::move(row)));
}

/// Removes the rows that are left out.
void PreparedTask::add_prompts(std::vector<data::Row>& rows, const tokenizer::Tokenizer& tokenizer, int64_t positions) {
  const data::Prompts prompts(tokenizer, options_.form);
  stops_ = prompts.stops();
  const size_t count = rows.size();
  std::string first_fault;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) try {
      add_row(prepared_row({task_, options_, prompts}, rows[i], positions));
      numbers_.push_back(static_cast<int64_t>(i));
      std::swap(rows[kept++], rows[i]);
    } catch (const Error& error) {
      const auto located = error.with_context(concat("task ", task_.name, ": ", place_of(rows[i], i)));
      if (rows[i].is_required || error.kind() != kData) throw located;
      if (first_fault.empty()) first_fault = without_kind(located);
    }
  EK_CHECK(kept > 0, kData, "none of the ", count, " rows can be asked; the first: ", first_fault);
  rows.resize(kept);
  left_out_ = static_cast<int64_t>(count - kept);
  if (left_out_ == 0) return;
  note_ = concat(left_out_, " of ", count, " rows cannot be asked and are left out; the first: ", first_fault);
  warn_once(note_);
}

void PreparedTask::add_row(PreparedRow row) {
  is_context_cut_.push_back(row.is_context_cut);
  prompts_.add(row.prompt);
  if (!options_.likelihood) return;
  first_answer_.push_back(answer_tokens_.size());
  for (const auto& ids : row.answer_tokens) answer_tokens_.add(ids);
  answers_.push_back(std::move(row.answers));
}

void PreparedTask::add_examples(std::span<const data::Row> rows, const tokenizer::Tokenizer& tokenizer,
                                const models::ModelSpec& model) {
  const int64_t most = model.max_positions;
  examples_ = data::tokenize_rows(rows, tokenizer,
                                  {.form = options_.form,
                                   .cutoff = options_.cutoff > 0 ? std::min(options_.cutoff, most) : most,
                                   .eos = model.end_of_text});
  EK_CHECK(!examples_.examples.empty(), kData, "task ", task_.name,
           ": no row keeps anything of its answer when it is cut");
}

bool PreparedTask::is_context_cut(size_t row) const {
  EK_CHECK(row < is_context_cut_.size(), kInternal, "task ", task_.name, " has no prompt of row ", row);
  return is_context_cut_[row];
}

int64_t PreparedTask::number(size_t row) const {
  EK_CHECK(row < numbers_.size(), kInternal, "task ", task_.name, " has no prompt of row ", row);
  return numbers_[row];
}

const std::vector<std::string>& PreparedTask::answers(size_t row) const {
  EK_CHECK(row < answers_.size(), kInternal, "task ", task_.name, " has no answers of row ", row, " to score");
  return answers_[row];
}

std::vector<std::vector<int64_t>> PreparedTask::answer_tokens(size_t row) const {
  std::vector<std::vector<int64_t>> tokens;
  for (size_t i = 0; i < answers(row).size(); ++i) tokens.push_back(answer_tokens_.at(first_answer_[row] + i));
  return tokens;
}

bool PreparedTask::fits(const EvaluationOptions& options) const {
  return options.form == options_.form && options.cutoff == options_.cutoff &&
         options.max_new_tokens == options_.max_new_tokens && options.likelihood == options_.likelihood;
}

size_t PreparedTask::bytes() const {
  size_t bytes = sizeof *this + prompts_.bytes() + answer_tokens_.bytes() + rows_.size() * sizeof(data::Row) +
                 first_answer_.size() * sizeof(size_t) + numbers_.size() * sizeof(int64_t);
  for (const auto& row : rows_)
    bytes += row.instruction.capacity() + row.answer.capacity() + bytes_of(row.options) + bytes_of(row.references);
  for (const auto& answers : answers_) bytes += sizeof answers + bytes_of(answers);
  for (const auto& example : examples_.examples)
    bytes +=
        sizeof example + example.ids.capacity() * sizeof(int64_t) + example.between.capacity() * sizeof(data::IdSpan);
  return bytes + examples_.rows.capacity() * sizeof(int64_t);
}

}  // namespace evenkeel::scoring
