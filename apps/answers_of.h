/// \file  Makes the keys under which an evaluation without a run stores its answers. Everything that the answers depend
/// on changes the key.
#pragma once

#include <span>
#include <string>

#include "apps/model_options.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::apps {

/// Returns the key of model, adapter and options, from digests of the files' contents. Cost: one read of the weights,
/// unless their fingerprints are known (base/format/fingerprint.h).
std::string answers_of(const ModelOptions& flags, const OpenedModel& opened, const scoring::EvaluationOptions& options);

/// Returns the key of a task and its rows.
std::string key_of(const data::TaskInfo& task, std::span<const data::Row> rows);

}  // namespace evenkeel::apps
