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

#include "data/tasks.h"
#include "models/causal_lm.h"
#include "scoring/task_score.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// Checks the rows of a task before anything is computed: that there are rows, that check_test_rows() accepts them,
/// that prompts are non-empty and fit the model's positions, and, for Scoring::kNll, that answers remain after
/// truncation. `set.note` is logged once.
/// \param shape  a model, possibly without weights
/// \throws kData naming task and row (0 = the first)
void check_task(const CausalLm& shape, const Tokenizer& tokenizer, const TaskInfo& task, const TaskRows& set,
                const EvaluationOptions& options);
/// Checks that every row has a question and an answer.
/// \throws kData naming task and row (0 = the first) when a row has no question, an empty answer, a choice that is not
/// in row_answers(), or only blank references
void check_test_rows(const TaskInfo& task, std::span<const Row> rows);

/// Evaluates a model on a task. `set.note` is logged once.
/// Each prompt runs once. Its cache is used to rank the answers by total log-probability (ties go to the answer named
/// first), and then to generate. If greedy decoding begins with one of the answers, generation continues after it. A
/// common prefix of the prompts is computed once. Prompt and answer are tokenised together, as in training. A context
/// that is too long is truncated at its end.
/// Answers are ranked as continuations of the text that precedes the first option in the row's output, whichever answer
/// is correct. Of free text the likelihood of the first reference is computed.
/// Greedy outputs end early, where no further text can change the extracted answer, unless `predictions` is given.
/// Scores are the same.
/// Scoring::kNll generates nothing. Rows are truncated and tokenised as for training, including the end of sequence,
/// and a batch has at most 4096 tokens or one row.
/// \param predictions  receives one prediction per row; null: not needed
/// \param on_progress  called with the number of rows done and of all rows
/// \param items  receives the scores of the single rows; null: not needed
/// \throws kNumeric naming task and first row (0 = the first) whose logits are not finite; kData as check_test_rows()
TaskScore evaluate_task(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, const TaskRows& set, const EvaluationOptions& options,
                        std::vector<Prediction>* predictions = nullptr,
                        const std::function<void(int64_t done, int64_t rows)>& on_progress = {},
                        ItemScores* items = nullptr);

}  // namespace evenkeel
