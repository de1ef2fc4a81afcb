#include "scoring/prepared_task.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "data/left_out_rows.h"
#include "data/option_places.h"
#include "data/text_metrics.h"

namespace evenkeel::scoring {
namespace {

constexpr std::string_view kAnswerLead = "the correct answer is ";

constexpr std::string_view kArea = "[evaluate] ";

/// Counts different questions.
int64_t distinct_questions(std::span<const data::Row> rows) {
  std::set<std::vector<std::string_view>> questions;
  for (const auto& row : rows) questions.insert(data::comparable_question(row));
  return static_cast<int64_t>(questions.size());
}

/// Returns the text of the row's own answer.
const std::string& own_answer(const data::Row& row) {
  return row.turns.empty() ? row.output : row.turns.back().content;
}

/// Returns the text before the answer in a row's output, which is the same for all rows of a published task. For other
/// tasks it ends before the first option in the output, whichever option that is, so it does not reveal the correct
/// one.
std::string answer_lead(const data::Row& row) {
  if (row.options.empty()) return std::string(kAnswerLead);
  const auto& text = own_answer(row);
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

/// Returns the first accepted answer of free text that says anything, for its likelihood. The row's own answer keeps
/// the blanks before it, with which it is trained.
std::vector<std::string> first_reference(const data::Row& row) {
  for (const auto& reference : row.references) {
    const auto text = data::strip(reference);
    if (text.empty()) continue;
    return {reference == own_answer(row) ? reference.substr(0, reference.find(text) + text.size()) : text};
  }
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

bool is_blank_text(std::string_view text) { return data::strip(text).empty(); }

/// Returns why a row cannot be scored; empty if it can.
std::string fault_of(const data::TaskInfo& task, const data::Row& row) {
  if (task.scoring == data::Scoring::kNll) return is_blank_text(own_answer(row)) ? "has an empty answer" : "";
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

/// Returns the answers that are scored by log-likelihood: all allowed ones, or the first reference of free text.
std::vector<std::string> scored_answers(const Asking& asking, const data::Row& row) {
  if (!asking.options.likelihood) return {};
  return asking.task.free_text() ? first_reference(row) : data::row_answers(asking.task, row);
}

/// Returns the texts as which the answers are scored.
std::vector<std::string> scored_texts(const data::TaskInfo& task, const data::Row& row,
                                      std::vector<std::string> answers) {
  if (task.free_text()) return answers;
  const auto lead = answer_lead(row);
  for (auto& answer : answers) answer.insert(0, lead);
  return answers;
}

/// Adds the answers that are scored by log-likelihood. Free text has none if its answer is longer than what is
/// generated: likelihoods then need no more positions and no larger cache than generation does.
/// \param gap  what take_gap() took from the prompt \param texts  what follows it, of each answer
void add_answers(const Asking& asking, std::vector<std::string> answers, const std::string& prompt,
                 const std::string& gap, std::span<const std::string> texts, PreparedRow& prepared) {
  for (size_t i = 0; i < answers.size(); ++i) {
    auto ids = answer_ids(asking.prompts, prompt, prepared.prompt, gap + texts[i]);
    if (asking.task.free_text() && std::ssize(ids) > asking.options.max_new_tokens) return;
    prepared.answers.push_back(std::move(answers[i]));
    prepared.answer_tokens.push_back(std::move(ids));
  }
}

/// Returns a text as it stands in an output: without special tokens.
std::string as_output(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  if (text.empty()) return {};
  return tokenizer.decode(tokenizer.encode(text, /*add_special_tokens=*/false), /*skip_special_tokens=*/true);
}

/// Tokenises a row. \param most  the largest number of tokens of its prompt
PreparedRow prepared_within(const Asking& asking, const data::Row& row, int64_t most) {
  const auto& [task, options, prompts] = asking;
  const auto fitted = fitted_row(prompts, row, options.cutoff, most);
  auto prompt = prompts.evaluation_prompt(fitted);
  PreparedRow prepared{.prompt = prompts.encode(prompt), .is_context_cut = fitted.input.size() < row.input.size()};
  check_length(prepared.prompt, most);
  auto answers = scored_answers(asking, fitted);
  const auto written = prompts.written_answers(fitted, prompt, scored_texts(task, fitted, answers));
  prepared.before_answer = as_output(prompts.tokenizer(), written.before);
  const auto gap = take_gap(prompt, options.form);
  if (!gap.empty()) prepared.prompt = prompts.encode(prompt);
  EK_CHECK(!prepared.prompt.empty(), kData, "the prompt has no tokens");
  add_answers(asking, std::move(answers), prompt, gap, written.texts, prepared);
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
  data::warn_once(kArea, set.note);
  if (task_.scoring == data::Scoring::kNll)
    add_examples(set.rows, tokenizer, model);
  else
    add_prompts(set.rows, tokenizer, model.max_positions);
  data::warn_once(kArea, note_);
  questions_ = distinct_questions(set.rows);
  chance_ = data::chance_rate(task_, set.rows);
  for (auto& row : set.rows) rows_.push_back(scored_part(std::move(row)));
}

/// Removes the rows that are left out.
void PreparedTask::add_prompts(std::vector<data::Row>& rows, const tokenizer::Tokenizer& tokenizer, int64_t positions) {
  const data::Prompts prompts(tokenizer, options_.form);
  stops_ = prompts.stops();
  const size_t count = rows.size();
  data::LeftOutRows left_out;
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) try {
      add_row(prepared_row({task_, options_, prompts}, rows[i], positions));
      numbers_.push_back(static_cast<int64_t>(i));
      std::swap(rows[kept++], rows[i]);
    } catch (const Error& error) {
      left_out.add(error.with_context(concat("task ", task_.name, ": ", place_of(rows[i], i))), rows[i].is_required);
    }
  EK_CHECK(kept > 0, kData, "none of the ", count, " rows can be asked; the first: ", left_out.first_fault());
  rows.resize(kept);
  left_out_ = left_out.count();
  note_ = left_out.note(static_cast<int64_t>(count), "cannot be asked");
}

void PreparedTask::add_row(PreparedRow row) {
  is_context_cut_.push_back(row.is_context_cut);
  prompts_.add(row.prompt);
  before_answers_.push_back(std::move(row.before_answer));
  if (!options_.likelihood) return;
  first_answer_.push_back(answer_tokens_.size());
  for (const auto& ids : row.answer_tokens) answer_tokens_.add(ids);
  answers_.push_back(std::move(row.answers));
}

/// Removes the rows that are left out.
void PreparedTask::add_examples(std::vector<data::Row>& rows, const tokenizer::Tokenizer& tokenizer,
                                const models::ModelSpec& model) {
  const int64_t most = model.max_positions, cutoff = options_.cutoff > 0 ? std::min(options_.cutoff, most) : most;
  for (auto& row : rows) row.answer_at = -1;  // a window around the correct answer would tell where it is
  examples_ = data::tokenize_rows(rows, tokenizer, {.form = options_.form, .cutoff = cutoff, .eos = model.end_of_text});
  EK_CHECK(!examples_.examples.empty(), kData, "task ", task_.name, ": ",
           data::why_no_example(examples_, concat(cutoff, " tokens")));
  note_ = examples_.note;
  left_out_ = std::ssize(examples_.left_out);
  keep_tokenised(rows);
}

/// Removes the rows that could not be tokenised, and numbers the others anew in examples_.
void PreparedTask::keep_tokenised(std::vector<data::Row>& rows) {
  std::vector<int64_t> all(rows.size());
  std::iota(all.begin(), all.end(), 0);
  std::set_difference(all.begin(), all.end(), examples_.left_out.begin(), examples_.left_out.end(),
                      std::back_inserter(numbers_));
  for (size_t i = 0; i < numbers_.size(); ++i) std::swap(rows[i], rows[static_cast<size_t>(numbers_[i])]);
  rows.resize(numbers_.size());
  for (auto& row : examples_.rows) row = std::lower_bound(numbers_.begin(), numbers_.end(), row) - numbers_.begin();
}

bool PreparedTask::is_context_cut(size_t row) const {
  EK_CHECK(row < is_context_cut_.size(), kInternal, "task ", task_.name, " has no prompt of row ", row);
  return is_context_cut_[row];
}

int64_t PreparedTask::number(size_t row) const {
  EK_CHECK(row < numbers_.size(), kInternal, "task ", task_.name, " has no row ", row);
  return numbers_[row];
}

const std::string& PreparedTask::before_answer(size_t row) const {
  EK_CHECK(row < before_answers_.size(), kInternal, "task ", task_.name, " has no prompt of row ", row);
  return before_answers_[row];
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
                 first_answer_.size() * sizeof(size_t) + numbers_.size() * sizeof(int64_t) + bytes_of(before_answers_);
  for (const auto& row : rows_)
    bytes += row.instruction.capacity() + row.answer.capacity() + bytes_of(row.options) + bytes_of(row.references);
  for (const auto& answers : answers_) bytes += sizeof answers + bytes_of(answers);
  for (const auto& example : examples_.examples)
    bytes +=
        sizeof example + example.ids.capacity() * sizeof(int64_t) + example.between.capacity() * sizeof(data::IdSpan);
  return bytes + examples_.rows.capacity() * sizeof(int64_t);
}

}  // namespace evenkeel::scoring
