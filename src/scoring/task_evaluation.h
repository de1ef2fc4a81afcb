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
#include "scoring/prepared_task.h"
#include "scoring/task_score.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// Checks the prompts of a task before anything is computed. \param shape  a model, possibly without weights
/// \throws kData naming task and row (0 = the first) of a prompt that is too long for the model's positions
void check_task(const CausalLm& shape, const PreparedTask& task, const EvaluationOptions& options);

/// Evaluates a model on a task.
/// Each prompt runs once. Its cache is used to rank the answers by total log-probability (ties go to the answer named
/// first), and then to generate. If greedy decoding begins with one of the answers, generation continues after it. A
/// common beginning of the prompts is computed once. Prompt and answer are tokenised together, as in training. A
/// context that is too long loses its tail.
/// Answers are ranked as continuations of the text that precedes the first option in the row's output, whichever answer
/// is correct. Of free text the likelihood of the first reference is computed.
/// Greedy outputs end early, where no further text can change the extracted answer, unless `predictions` is given.
/// Scores are the same.
/// Scoring::kNll generates nothing. Rows are cut and tokenised as for training, including the end of sequence, and a
/// batch has at most 4096 tokens or one row.
/// \param tokenizer    the one that prepared `task`; it decodes the outputs
/// \param options      the template and the lengths that `task` was prepared for
/// \param predictions  receives one prediction per row; null: not needed
/// \param on_progress  called with the number of rows done and of all rows
/// \param items        receives the scores of the single rows; null: not needed
/// \throws kNumeric naming task and first row (0 = the first) whose logits are not finite; kInternal when `options`
/// does not fit `task`
TaskScore evaluate_task(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const PreparedTask& task, const EvaluationOptions& options,
                        std::vector<Prediction>* predictions = nullptr,
                        const std::function<void(int64_t done, int64_t rows)>& on_progress = {},
                        ItemScores* items = nullptr);

}  // namespace evenkeel
