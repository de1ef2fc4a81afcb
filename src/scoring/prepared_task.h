/// \file  Checks and tokenises the test rows of a task once for all evaluations of a run. The tokens depend on the
/// tokenizer and on EvaluationOptions::form, cutoff, max_new_tokens and likelihood. They do not depend on weights,
/// budget or adapter.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/prompt.h"
#include "data/tasks.h"
#include "models/causal_lm.h"
#include "scoring/task_score.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::scoring {

/// Checks that every row has a question and an answer.
/// \throws kData naming task and row (file and line, or its index) when a row has no question, an empty answer, a
/// choice that is not in data::row_answers(), or only blank references
void check_test_rows(const data::TaskInfo& task, std::span<const data::Row> rows);

/// Lists of token ids in one array of 32-bit numbers.
class TokenLists {
 public:
  /// Appends a list. REQUIRES ids below 2^31.
  void add(std::span<const int64_t> ids);
  size_t size() const { return ends_.size(); }
  /// Returns list `i`. \throws kInternal when there is none
  std::vector<int64_t> at(size_t i) const;
  /// Returns the memory in use, in bytes.
  size_t bytes() const { return ids_.capacity() * sizeof(int32_t) + ends_.capacity() * sizeof(size_t); }

 private:
  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;
};

/// The tokens of a row.
struct PreparedRow {
  std::vector<int64_t> prompt{};
  bool is_context_cut = false;                        ///< whether the end of the row's context was cut off
  std::string before_answer{};                        ///< PreparedTask::before_answer()
  std::vector<std::string> answers{};                 ///< the answers that are scored by log-likelihood
  std::vector<std::vector<int64_t>> answer_tokens{};  ///< the tokens of each answer, which follow the prompt
};

/// A task with its test rows, ready for evaluate_task(). Immutable and thread-safe.
class PreparedTask {
 public:
  /// Checks and tokenises the rows. `set.note` is logged once per process. A row whose prompt cannot be made, or that
  /// cannot be tokenised, is left out if it is not required (Row::is_required).
  /// \param model  only its number of positions and its end-of-text token are used
  /// \throws kData naming task and row (file and line, or its index): as check_test_rows(), and for a prompt that is
  /// empty or so long that `max_new_tokens` or the row's longest answer do not fit into the model's positions after it;
  /// also without rows, and for Scoring::kNll when truncation removes the answers of all rows
  PreparedTask(data::TaskInfo task, data::TaskRows set, const tokenizer::Tokenizer& tokenizer,
               const models::ModelSpec& model, const EvaluationOptions& options);

  const data::TaskInfo& task() const { return task_; }
  /// Returns answer, options, references and place of each row, and its question (data::question_text()) as
  /// instruction. The other fields are empty, to save memory.
  std::span<const data::Row> rows() const { return rows_; }
  /// Returns the number of distinct questions. Rows with the same question and context count once.
  int64_t questions() const { return questions_; }
  int64_t left_out() const { return left_out_; }     ///< rows that were left out
  const std::string& note() const { return note_; }  ///< how many, and why the first; empty if none was left out
  double chance() const { return chance_; }          ///< chance_rate() of the rows
  /// Returns true if `options` has the form, cutoff, max_new_tokens and likelihood that the rows were prepared for.
  bool fits(const EvaluationOptions& options) const;
  /// Returns about how much memory the object holds, in bytes.
  size_t bytes() const;

  /// Returns the row's index among the rows that the constructor was given. It counts rows that were left out.
  /// \throws kInternal for a row that does not exist
  int64_t number(size_t row) const;
  /// Returns the tokens of the row's prompt. This and the following functions with the parameter `row` throw kInternal
  /// for a row that does not exist, and for every row with Scoring::kNll, which has no prompts.
  std::vector<int64_t> prompt(size_t row) const { return prompts_.at(row); }
  /// Returns true if the end of the row's context was cut off.
  bool is_context_cut(size_t row) const;
  /// Returns what the chat template writes between prompt and answer, without special tokens; usually empty. A model
  /// that was trained with this template begins its output with it.
  const std::string& before_answer(size_t row) const;
  /// Returns true if answers are scored by log-likelihood: EvaluationOptions::likelihood was set, and the scoring is
  /// not kNll.
  bool weighs_answers() const { return !answers_.empty(); }
  /// Returns the answers that are scored by log-likelihood. For a choice these are all allowed answers. For free text
  /// it is the first reference that is not blank, or none if this reference has more than max_new_tokens tokens.
  /// \throws kInternal without weighs_answers()
  const std::vector<std::string>& answers(size_t row) const;
  /// Returns the tokens that follow the prompt, for each of answers(row), as training has them
  /// (data::Prompts::written_answers()). A choice stands after the text before the first option in the row's output, or
  /// after "the correct answer is " if the row has no options of its own.
  /// \throws kInternal without weighs_answers()
  std::vector<std::vector<int64_t>> answer_tokens(size_t row) const;
  /// Returns the token ids that end an answer in addition to the model's eos (Prompts::stops()). Empty for kNll.
  const std::vector<int64_t>& stops() const { return stops_; }

  /// Returns the rows tokenised as for training, for Scoring::kNll. A context that is too long keeps its beginning,
  /// wherever it holds the answer.
  const data::TokenizedRows& examples() const { return examples_; }

 private:
  void add_prompts(std::vector<data::Row>& rows, const tokenizer::Tokenizer& tokenizer, int64_t positions);
  void add_row(PreparedRow row);
  void add_examples(std::vector<data::Row>& rows, const tokenizer::Tokenizer& tokenizer,
                    const models::ModelSpec& model);
  void keep_tokenised(std::vector<data::Row>& rows);

  data::TaskInfo task_;
  EvaluationOptions options_;
  std::vector<data::Row> rows_;
  int64_t questions_ = 0, left_out_ = 0;
  std::string note_;
  double chance_ = 0;
  TokenLists prompts_, answer_tokens_;
  std::vector<int64_t> numbers_;  // index of each row among those that were given
  std::vector<bool> is_context_cut_;
  std::vector<std::string> before_answers_;
  std::vector<std::vector<std::string>> answers_;
  std::vector<size_t> first_answer_;  // of each row, in answer_tokens_
  std::vector<int64_t> stops_;
  data::TokenizedRows examples_;
};

}  // namespace evenkeel::scoring
