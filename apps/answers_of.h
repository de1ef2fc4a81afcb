/// \file  What the answers of an evaluation without a run depend on, as keys of their journal.
#pragma once

#include <span>
#include <string>

#include "apps/model_options.h"
#include "scoring/task_evaluation.h"

namespace evenkeel {

/// Of model, adapter and options: digests of the files as they are. Cost: one read of the weights, where they are not
/// known yet (base/format/fingerprint.h).
std::string answers_of(const ModelOptions& flags, const OpenedModel& opened, const EvaluationOptions& options);

/// Of a task and the rows that it asks.
std::string key_of(const TaskInfo& task, std::span<const Row> rows);

}  // namespace evenkeel
