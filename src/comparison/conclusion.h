/// \file  Formats the result of a comparison as one sentence.
#pragma once

#include <string>

#include "comparison/arm_result.h"
#include "scoring/measures.h"

namespace evenkeel::comparison {

/// Formats a value of a measure with `decimals` decimals; shares in percent, without the sign.
std::string value_text(double value, const scoring::Measure& measure, int decimals);
/// Formats a difference with two significant digits; shares in percentage points.
std::string size_text(double value, const scoring::Measure& measure);

/// Returns true for a difference that is shown: p < 0.05 after Holm's correction.
bool is_shown(const PairedDifference& difference);

/// Returns the sentence of an arm. It names the budgets at which a difference was shown (p < 0.05 after Holm's
/// correction) and the budgets at which none was shown. For budgets without a shown difference, it names the size of
/// differences that could not have been detected (80 % power, two-sided 5 %). It also names ArmResult::unlike, because
/// these properties may cause a difference.
/// Example: "No difference of ub-smoe to fedit was shown at any budget; differences below 0.031 could not have been
/// detected."
std::string conclusion(const ArmResult& arm, const scoring::Measure& measure);

}  // namespace evenkeel::comparison
