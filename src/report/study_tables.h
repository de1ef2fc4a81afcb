/// \file  Makes the tables of a study's report.
#pragma once

#include <vector>

#include "comparison/comparison.h"
#include "report/table.h"

namespace evenkeel::report {

/// Returns the name of a way of serving in titles: "in the run", "exported: transformers".
std::string served_title(scoring::ServedBy served_by);

/// Returns what changes the function that is trained or scored and is not equal in all arms; "" if there is nothing.
/// All tables of arms have it as a note.
std::string function_note(const comparison::ServedResult& result);

/// Makes the table of the endpoint with one line per arm and budget, and the other measures in further columns.
Table means_by_line(const comparison::Comparison& comparison, const comparison::ServedResult& result);
/// Makes the table of the endpoint with one line per arm and one column per budget, with intervals.
Table means_by_budget(const comparison::Comparison& comparison, const comparison::ServedResult& result);
/// Makes the table of the other measures with one line per arm and budget. It has no rows if there are no others.
Table measures_beside_endpoint(const comparison::Comparison& comparison, const comparison::ServedResult& result);
/// Makes the table of paired differences of one arm, one line per budget.
Table differences_of(const comparison::Comparison& comparison, const comparison::ArmResult& arm);
/// Explains the columns of the paired differences.
std::string differences_note(const comparison::ServedResult& result);
/// Makes the table of paired differences of all arms, one line per arm and budget.
Table all_differences(const comparison::Comparison& comparison, const comparison::ServedResult& result,
                      const std::string& reference);
/// Makes the table of wins, losses and ties, one line per task and one column per arm. It has no columns if the
/// reference is the only arm.
Table wins_and_losses(const comparison::ServedResult& result, const std::string& reference);
/// Makes the table of costs, one line per arm.
Table costs(const comparison::Comparison& comparison);

}  // namespace evenkeel::report
