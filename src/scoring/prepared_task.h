/// \file  The test rows of a task, checked and tokenised for evaluation. Tokens depend on the tokenizer, the template
/// and the lengths of an evaluation, but on no weights, budget or adapter. One PreparedTask therefore serves all
/// evaluations of a run.
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

/// Removes blanks and line breaks at both ends of a text.
std::string strip(std::string_view text);

/// Returns the answers that a row allows: its options, or else those in its line "Answer format: a/b/c", or else those
/// of the task.
std::vector<std::string> row_answers(const data::TaskInfo& task, const data::Row& row);

/// Checks that every row has a question and an answer.
/// \throws kData naming task and row (0 = the first) when a row has no question, an empty answer, a choice that is not
/// in row_answers(), or only blank references
void check_test_rows(const data::TaskInfo& task, std::span<const data::Row> rows);

/// Lists of token ids in one array of 32-bit numbers.
class TokenLists {
 public:
  void add(std::span<const int64_t> ids);
  size_t size() const { return ends_.size(); }
  std::vector<int64_t> at(size_t i) const;
  /// Returns the memory in use.
  size_t bytes() const { return ids_.capacity() * sizeof(int32_t) + ends_.capacity() * sizeof(size_t); }

 private:
  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;
};

/// A task with its test rows, ready for evaluate_task(). Immutable and thread-safe.
class PreparedTask {
 public:
  /// Checks and tokenises the rows. `set.note` is logged once per process.
  /// \param model  positions and end of text of the model
  /// \throws kData naming task and row (0 = the first): no rows, what check_test_rows() refuses, a prompt that is empty
  /// or leaves no room for an answer, and, for Scoring::kNll, no answer that remains after cutting
  PreparedTask(data::TaskInfo task, data::TaskRows set, const tokenizer::Tokenizer& tokenizer,
               const models::ModelSpec& model, const EvaluationOptions& options);

  const data::TaskInfo& task() const { return task_; }
  /// Returns answer, options and references of each row. The other fields are empty, to save memory.
  std::span<const data::Row> rows() const { return rows_; }
  /// Returns the number of distinct questions. Rows with the same question and context count once.
  int64_t questions() const { return questions_; }
  double chance() const { return chance_; }  ///< chance_rate() of the rows
  /// Returns true if `options` has the template and the lengths that the rows were prepared for.
  bool fits(const EvaluationOptions& options) const;
  /// Returns about how much memory the object holds, in bytes.
  size_t bytes() const;

  /// Tasks whose answers are generated: the prompt of a row, and whether its context lost its tail.
  std::vector<int64_t> prompt(size_t row) const { return prompts_.at(row); }
  bool is_context_cut(size_t row) const { return is_context_cut_[row]; }
  /// Returns true if answers of each row are weighed by their likelihood: all allowed answers of a choice, and the
  /// first reference of free text. answers() and answer_tokens() then have one entry per answer.
  bool weighs_answers() const { return !answers_.empty(); }
  const std::vector<std::string>& answers(size_t row) const { return answers_[row]; }
  /// Returns the tokens of each answer after the prompt.
  std::vector<std::vector<int64_t>> answer_tokens(size_t row) const;
  /// Returns Prompts::stops().
  const std::vector<int64_t>& stops() const { return stops_; }

  /// Returns the rows tokenised as for training, for Scoring::kNll.
  const data::TokenizedRows& examples() const { return examples_; }

 private:
  void add_prompt(const data::Prompts& prompts, const data::Row& row, int64_t positions);
  void add_answers(const data::Prompts& prompts, const data::Row& row, const std::string& prompt,
                   const std::string& gap);
  void add_examples(std::span<const data::Row> rows, const tokenizer::Tokenizer& tokenizer,
                    const models::ModelSpec& model);

  data::TaskInfo task_;
  EvaluationOptions options_;
  std::vector<data::Row> rows_;
  int64_t questions_ = 0;
  double chance_ = 0;
  TokenLists prompts_, answer_tokens_;
  std::vector<bool> is_context_cut_;
  std::vector<std::vector<std::string>> answers_;
  std::vector<size_t> first_answer_;  // of each row, in answer_tokens_
  std::vector<int64_t> stops_;
  data::TokenizedRows examples_;
};

}  // namespace evenkeel::scoring
