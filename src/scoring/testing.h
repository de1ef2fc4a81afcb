/// \file  Evaluates rows in one call, for tests.
#pragma once

#include <vector>

#include "scoring/task_evaluation.h"

namespace evenkeel::testing {

/// Prepares the rows for the model and evaluates it on them. \see scoring::evaluate_task
inline scoring::TaskScore evaluate_task(const models::CausalLm& model, const tokenizer::Tokenizer& tokenizer,
                                        const models::ForwardOptions& forward, const data::TaskInfo& task,
                                        const data::TaskRows& set, const scoring::EvaluationOptions& options,
                                        std::vector<scoring::Prediction>* predictions = nullptr,
                                        const scoring::OnRows& on_progress = {}, scoring::ItemScores* items = nullptr) {
  const scoring::PreparedTask prepared(task, set, tokenizer, model.spec(), options);
  return scoring::evaluate_task({model, tokenizer, forward}, prepared, options, {predictions, items}, on_progress);
}

}  // namespace evenkeel::testing
