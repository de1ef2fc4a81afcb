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

/// The model that is evaluated. All members are borrowed.
struct EvaluatedModel {
  const models::CausalLm& model;
  const tokenizer::Tokenizer& tokenizer;  ///< the tokenizer that prepared the task; it decodes the outputs
  const models::ForwardOptions& forward;
};

/// Answers to the rows of a task.
struct TaskAnswers {
  std::vector<Prediction> predictions;  ///< one per row: output, gold; with ranking, also ranked, nll, answer_tokens
  int64_t context_cut = 0;              ///< number of rows whose context was truncated
  double seconds = 0;                   ///< time of all batches, including those of an earlier process
};

/// Called with the number of answered rows and the number of all rows. It may throw to end the evaluation.
using OnRows = std::function<void(int64_t done, int64_t rows)>;

/// Settings with which answer_rows() generates and stores answers.
struct AnswerSettings {
  bool whole_outputs = true;  ///< false: an output ends where no further text can change the extracted answer
  std::string key{};          ///< key of the batches in the journal
};

/// Returns true if no further text can change the answer that is extracted from the output: extraction with and without
/// lower-casing finds the same allowed answer, and it is not a part of another allowed answer. False for free text and
/// for rows with options of their own.
bool is_read(const data::TaskInfo& task, const data::Row& row, const std::string& output);

/// Answers rows as evaluate_task() describes.
/// \throws kNumeric naming task and first row whose logits are not finite; kCheckpoint as hand_over(); kData and
/// kConfig as run_prompts()
TaskAnswers answer_rows(const EvaluatedModel& evaluated, const PreparedTask& task, const EvaluationOptions& options,
                        const AnswerSettings& settings, const OnRows& on_progress);

/// Checks that answer_rows() accepts the prompts, without computing anything.
/// \param shape  a model, possibly without weights
/// \throws kData naming task and row (0 = the first) of a prompt that is too long for the model's positions
void check_prompts(const models::CausalLm& shape, const PreparedTask& task, const EvaluationOptions& options);

}  // namespace evenkeel::scoring
