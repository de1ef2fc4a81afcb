/// \file  How well a model answers a task. Choices: by generation and extraction, and by ranking the allowed answers by
/// likelihood. Free text: by generation, compared with the accepted answers. Or the likelihood of the answers alone.
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

/// What evaluate_task() would refuse of a task's rows, before anything is computed: no rows, prompts that are empty or
/// longer than the model's positions leave, no answer that is left when rows are cut. What `set.note` says is logged
/// once. \param shape  its weights are not read. \throws kData naming task and row (0 = the first)
void check_task(const CausalLm& shape, const Tokenizer& tokenizer, const TaskInfo& task, const TaskRows& set,
                const EvaluationOptions& options);
/// What evaluate_task() asks of rows before anything runs. \throws kData naming task and row (0 = the first) that asks
/// nothing, whose answer is empty or, of a choice, none of row_answers(), or whose references all say nothing.
void check_test_rows(const TaskInfo& task, std::span<const Row> rows);

/// Each prompt runs once: its cache serves the ranking of the answers (total log-probability, ties to the answer named
/// first) and then generation, which goes on behind the answer that it begins with. What the prompts of a task begin
/// with alike runs once. Without `predictions`, and greedily, an output ends where its answer can be read and nothing
/// that follows could change it: scores are the same. An answer is ranked behind what stands before the first option
/// in the row's output, whichever is right. Prompt and answer are tokenised together, as in training. A context that
/// does not fit loses its tail. Free text is not ranked. What `set.note` says is logged once. Scoring::kNll generates
/// nothing: rows are cut and tokenised as for training, the end of sequence included, and no
/// batch of theirs is longer than 4096 tokens or one row. \throws kNumeric naming task and first row (0 = the first)
/// whose logits are not finite.
/// \param predictions  filled when given, one per row.
TaskScore evaluate_task(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, const TaskRows& set, const EvaluationOptions& options,
                        std::vector<Prediction>* predictions = nullptr,
                        const std::function<void(int64_t done, int64_t rows)>& on_progress = {});

}  // namespace evenkeel
