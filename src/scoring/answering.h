/// \file  Rows of a task through the model: prompts in batches, allowed answers ranked, the answer generated, each
/// batch kept in a journal. What is made of the answers is scoring/task_evaluation.h.
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

/// Without blanks and line breaks at both ends.
std::string strip(std::string_view text);

/// The answers a row allows: its options, else those of its line "Answer format: a/b/c", else the task's.
std::vector<std::string> row_answers(const TaskInfo& task, const Row& row);

struct TaskAnswers {
  std::vector<Prediction> predictions;  ///< one per row: output, gold, ranked
  int64_t context_cut = 0;              ///< rows whose context lost its tail
  double seconds = 0;                   ///< of all batches, those of an earlier process included
};

/// What evaluate_task() says of prompts and answers.
/// \param whole_outputs  else an output ends where nothing that follows could change the answer that is read in it
/// \param key            of the journal
TaskAnswers answer_rows(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                        const TaskInfo& task, std::span<const Row> rows, const EvaluationOptions& options,
                        bool whole_outputs, const std::string& key,
                        const std::function<void(int64_t done, int64_t rows)>& on_progress);

/// What answer_rows() would refuse of the prompts, before anything is computed. \param shape  its weights are not read
/// \throws kData naming task and row (0 = the first) of a prompt that is empty, or longer than the positions leave.
void check_rows(const CausalLm& shape, const Tokenizer& tokenizer, const TaskInfo& task, std::span<const Row> rows,
                const EvaluationOptions& options);

}  // namespace evenkeel
