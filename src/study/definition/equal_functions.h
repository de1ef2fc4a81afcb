/// \file  Checks that all arms of a study compute the same function of the same adapter.
///
/// Two keys change this function without being part of what a study compares: the gate weights of the selected experts,
/// which depend on `method.gate_norm` and on the checkpoint, and the number of experts per token in evaluations of rank
/// methods, `evaluate.rank_eval_modes`. On a checkpoint without renormalised gates, methods with different defaults of
/// `method.gate_norm` differ in their scores before any training.
#pragma once

#include <span>

#include "study/definition/study_plan.h"

namespace evenkeel::study {

/// Checks that the gate weights are renormalised in all arms or in none, and that all arms are scored with the same
/// number of experts per token in some rank evaluation mode. Reads the config.json of the models, no weights. A
/// difference is allowed if `[study] free` names its key. Gates may also differ between models if it names model.path.
/// \param runs  planned runs of the study; the runs of one seed are enough
/// \throws kConfig naming the arms, their values and both remedies; as models::load_shape()
void check_equal_functions(const StudySection& study, std::span<const PlannedRun> runs);

}  // namespace evenkeel::study
