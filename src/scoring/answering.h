/// \file  Answers the rows of a task with a model: runs prompts in batches, ranks the allowed answers, generates, and
/// stores each batch in a journal. scoring/task_evaluation.h computes scores from the answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "scoring/answer_journal.h"
#include "scoring/prepared_task.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::scoring {

/// The model that is evaluated. Borrows all three.
struct EvaluatedModel {
  const models::CausalLm& model;
  const tokenizer::Tokenizer& tokenizer;  ///< the one that prepared the task; it decodes the outputs
  const models::ForwardOptions& forward;
};

/// Answers to the rows of a task.
struct TaskAnswers {
  std::vector<Prediction> predictions;  ///< one per row: output, gold; with ranking, also ranked, nll, answer_tokens
  int64_t context_cut = 0;              ///< number of rows whose context was truncated
  double seconds = 0;                   ///< time of all batches, including those of an earlier process
};

/// Called with the number of rows done and of all rows. It may throw to end the evaluation.
using OnRows = std::function<void(int64_t done, int64_t rows)>;

/// Settings with which answer_rows() generates and stores answers.
struct AnswerSettings {
  bool whole_outputs = true;  ///< false: an output ends where no further text can change the extracted answer
  std::string key{};          ///< key of the batches in the journal
};

/// Returns true if no further text can change the answer that is extracted from the output: both rules find it, and it
/// is not a part of another answer. An option of the row itself counts only when the text after it is known.
bool is_read(const data::TaskInfo& task, const data::Row& row, const std::string& output);

/// Answers rows as evaluate_task() describes.
/// \throws kNumeric naming task and first row whose logits are not finite
TaskAnswers answer_rows(const EvaluatedModel& evaluated, const PreparedTask& task, const EvaluationOptions& options,
                        const AnswerSettings& settings, const OnRows& on_progress);

/// Checks that answer_rows() accepts the prompts, without computing anything.
/// \param shape  a model, possibly without weights
/// \throws kData naming task and row (0 = the first) of a prompt that is too long for the model's positions
void check_prompts(const models::CausalLm& shape, const PreparedTask& task, const EvaluationOptions& options);

}  // namespace evenkeel::scoring
