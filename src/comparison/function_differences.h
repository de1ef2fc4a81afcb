/// \file  Names in the result of a comparison what changes the function that is trained or scored and is not equal in
/// all arms: properties of the runs (comparison/differences.h), and of the scores, which depend on the rank evaluation
/// mode.
#pragma once

#include "comparison/arm_result.h"
#include "comparison/score_lookup.h"

namespace evenkeel::comparison {

/// Sets ServedResult::unlike and ArmResult::unlike. REQUIRES that the arms and their references are set
void add_function_differences(const StudyRuns& study, const ScoreLookup& scores, ServedResult& result);

}  // namespace evenkeel::comparison
