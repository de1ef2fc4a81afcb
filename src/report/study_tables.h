/// \file  Makes the tables of a study's report.
#pragma once

#include <vector>

#include "comparison/comparison.h"
#include "report/table.h"

namespace evenkeel::report {

/// Returns the name of a way of serving in titles: "in the run", "exported: transformers".
std::string served_title(scoring::ServedBy served_by);

/// Returns the properties, other than the method, that change model outputs and differ between arms, and the arms
/// without scores of exported adapters; "" if there are none. It is a note of the tables that compare arms.
std::string function_note(const comparison::ServedResult& result);

/// Makes the table of the endpoint (the study's primary measure) with one line per arm and budget, and the other
/// measures in further columns.
Table means_by_line(const comparison::Comparison& comparison, const comparison::ServedResult& result);
/// Makes the table of the endpoint with one line per arm and one column per budget, with intervals.
Table means_by_budget(const comparison::Comparison& comparison, const comparison::ServedResult& result);
/// Makes the table of the other measures with one line per arm and budget. It has no rows if there is no other measure.
Table measures_beside_endpoint(const comparison::Comparison& comparison, const comparison::ServedResult& result);
/// Makes the table of paired differences of one arm to its reference, one line per budget.
Table differences_of(const comparison::Comparison& comparison, const comparison::ArmResult& arm);
/// Explains the columns of the paired differences.
std::string differences_note(const comparison::ServedResult& result);
/// Makes the table of paired differences of all arms to the reference, one line per arm and budget.
Table all_differences(const comparison::Comparison& comparison, const comparison::ServedResult& result,
                      const std::string& reference);
/// Makes the table of wins, losses and ties, one line per task and one column per arm. It has only the column of tasks
/// if the reference is the only arm.
Table wins_and_losses(const comparison::ServedResult& result, const std::string& reference);
/// Makes the table of mean costs of a run, one line per arm.
Table costs(const comparison::Comparison& comparison);

}  // namespace evenkeel::report
