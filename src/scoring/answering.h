/// \file  Answers the rows of a task with a model: runs prompts in batches, ranks the allowed answers, generates, and
/// stores each batch in a journal. scoring/task_evaluation.h computes scores from the answers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tasks.h"
#include "models/causal_lm.h"
#include "scoring/answer_journal.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// Removes blanks and line breaks at both ends of a text.
std::string strip(std::string_view text);

/// Returns the answers that a row allows: its options, or else those in its line "Answer format: a/b/c", or else those
/// of the task.
std::vector<std::string> row_answers(const TaskInfo& task, const Row& row);

/// Answers to the rows of a task.
struct TaskAnswers {
  std::vector<Prediction> predictions;  ///< one per row: output, gold; if ranked, also ranked, nll, answer_tokens
  int64_t context_cut = 0;              ///< number of rows whose context was truncated
  double seconds = 0;                   ///< time of all batches, including those of an earlier process
};

/// Answers rows as evaluate_task() describes.
/// \param whole_outputs  false: an output ends where no further text can change the extracted answer
/// \param key            key of the batches in the journal
/// \throws kNumeric naming task and first row whose logits are not finite
TaskAnswers answer_rows(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, std::span<const Row> rows, const EvaluationOptions& options,
                        bool whole_outputs, const std::string& key,
                        const std::function<void(int64_t done, int64_t rows)>& on_progress);

/// Checks that answer_rows() accepts the prompts, without computing anything.
/// \param shape  a model, possibly without weights
/// \throws kData naming task and row (0 = the first) of a prompt that is empty or too long for the model's positions
void check_rows(const CausalLm& shape, const Tokenizer& tokenizer, const TaskInfo& task, std::span<const Row> rows,
                const EvaluationOptions& options);

}  // namespace evenkeel
