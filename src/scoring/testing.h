/// \file  Evaluates rows in one call, for tests.
#pragma once

#include <vector>

#include "scoring/task_evaluation.h"

namespace evenkeel::testing {

/// Prepares the rows for the model and evaluates it on them. \see evenkeel::evaluate_task
inline TaskScore evaluate_task(const CausalLm& model, const Tokenizer& tokenizer, const ForwardOptions& forward,
                               const TaskInfo& task, const TaskRows& set, const EvaluationOptions& options,
                               std::vector<Prediction>* predictions = nullptr, const OnRows& on_progress = {},
                               ItemScores* items = nullptr) {
  const PreparedTask prepared(task, set, tokenizer, model.spec(), options);
  return evenkeel::evaluate_task({model, tokenizer, forward}, prepared, options, {predictions, items}, on_progress);
}

}  // namespace evenkeel::testing
