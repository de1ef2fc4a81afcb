/// \file  Evaluates a model on a task.
/// Tasks with choices are evaluated by generating and extracting an answer, and by ranking the allowed answers by
/// likelihood. Free text is generated and compared with the accepted answers. A task with Scoring::kNll measures the
/// likelihood of the answers only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "scoring/answering.h"
#include "scoring/prepared_task.h"
#include "scoring/task_score.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::scoring {

/// Checks the prompts of a task before anything is computed.
/// \param shape  a model, possibly without weights
/// \throws kData naming task and row (0 = the first) of a prompt that is too long for the model's positions
void check_task(const models::CausalLm& shape, const PreparedTask& task, const EvaluationOptions& options);

/// Receives results of single rows. Both objects are borrowed; null: not needed.
struct RowOutputs {
  std::vector<Prediction>* predictions = nullptr;  ///< receives one prediction per row
  ItemScores* items = nullptr;                     ///< receives the scores of the rows
};

/// Evaluates a model on a task.
/// Each prompt runs once. Its cache is used to rank the answers by total log-probability (ties go to the answer that is
/// listed first), and then to generate. If greedy decoding begins with an answer, generation continues after it. A
/// common prefix of the prompts is computed once. Prompt and answer are tokenised together, as in training. A context
/// that is too long is truncated at its end.
/// Answers are ranked as continuations of a text that does not depend on the correct answer
/// (PreparedTask::answer_tokens()). For free text, the likelihood of the first reference is computed.
/// If no predictions are requested, a greedy output ends as soon as no further text can change the extracted answer.
/// This does not change the scores.
/// Scoring::kNll generates nothing. Rows are tokenised as for training, including the end-of-sequence token; a context
/// that is too long is truncated at its end here too. A batch has at most 4096 tokens, or one row.
/// \param options  must have the form, cutoff, max_new_tokens and likelihood that `task` was prepared with
/// \throws kNumeric naming task and first row (0 = the first) whose logits are not finite; kConfig for a batch size
/// below 1; kInternal when `options` does not fit `task`; as answer_rows()
TaskScore evaluate_task(const EvaluatedModel& evaluated, const PreparedTask& task, const EvaluationOptions& options,
                        const RowOutputs& outputs = {}, const OnRows& on_progress = {});

}  // namespace evenkeel::scoring
