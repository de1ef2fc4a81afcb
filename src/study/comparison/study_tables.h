/// \file  Makes the tables of a study's report.
#pragma once

#include <vector>

#include "study/comparison/comparison.h"
#include "study/comparison/report_table.h"

namespace evenkeel::study {

/// Returns the name of a way of serving in titles: "in the run", "exported: transformers".
std::string served_title(scoring::ServedBy served_by);

/// Makes the table of the endpoint with one line per arm and budget, and the other measures in further columns.
ReportTable means_by_line(const Comparison& comparison, const ServedResult& result);
/// Makes the table of the endpoint with one line per arm and one column per budget, with intervals.
ReportTable means_by_budget(const Comparison& comparison, const ServedResult& result);
/// Makes the table of the other measures with one line per arm and budget. It has no rows if there are no others.
ReportTable measures_beside_endpoint(const Comparison& comparison, const ServedResult& result);
/// Makes the table of paired differences of one arm, one line per budget.
ReportTable differences_of(const Comparison& comparison, const ArmResult& arm);
/// Explains the columns of the paired differences.
std::string differences_note(const ServedResult& result);
/// Makes the table of paired differences of all arms, one line per arm and budget.
ReportTable all_differences(const Comparison& comparison, const ServedResult& result, const std::string& reference);
/// Makes the table of wins, losses and ties, one line per task and one column per arm. It has no columns if the
/// reference is the only arm.
ReportTable wins_and_losses(const ServedResult& result, const std::string& reference);
/// Makes the table of costs, one line per arm.
ReportTable costs(const Comparison& comparison);

}  // namespace evenkeel::study
