/// \file  Adds to the result of a comparison the properties that change model outputs and differ between arms:
/// properties of the runs (comparison/differences.h), and K and rank of the scores, which depend on the rank evaluation
/// mode.
#pragma once

#include "comparison/arm_result.h"
#include "comparison/score_lookup.h"

namespace evenkeel::comparison {

/// Sets ServedResult::unlike and ArmResult::unlike. REQUIRES that the arms and their references are set
void add_function_differences(const StudyRuns& study, const ScoreLookup& scores, ServedResult& result);

}  // namespace evenkeel::comparison
