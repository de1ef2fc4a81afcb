/// \file  Formats measures of scores (scoring/measures.h) as cells of a table.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "scoring/measures.h"

namespace evenkeel::report {

/// Returns the head of a column: the short title, with "%" for shares: "acc %".
std::string head_of(const scoring::Measure& measure);
/// Formats a value: a share in percent with one decimal, another measure with four significant digits; "-" if empty.
std::string measure_cell(std::optional<double> value, const scoring::Measure& measure);
/// Returns the unweighted mean over the scores; nothing unless all of them have the measure.
std::optional<double> mean_of(std::span<const scoring::TaskScore* const> scores, const scoring::Measure& measure);

}  // namespace evenkeel::report
