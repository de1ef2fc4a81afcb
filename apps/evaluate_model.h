/// \file  Evaluates a model or an adapter that no run made.
#pragma once

#include "apps/evaluate_flags.h"
#include "apps/score_writer.h"

namespace evenkeel::apps {

/// Scores all tasks of the flags at all their budgets. \param left_out  counts the rows of --data that were not scored
void evaluate_model(const EvaluateFlags& flags, ScoreWriter& writer, LeftOut& left_out);

}  // namespace evenkeel::apps
