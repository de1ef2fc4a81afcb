/// \file  The tables of a study's report.
#pragma once

#include <vector>

#include "study/comparison/comparison.h"
#include "study/comparison/report_table.h"

namespace evenkeel::study {

/// Returns the name of a way of serving in titles: "in the run", "exported: transformers".
std::string served_title(scoring::ServedBy served_by);

/// The endpoint: one line per arm and budget, with the other measures beside it.
ReportTable means_by_line(const Comparison& comparison, const ServedResult& result);
/// The endpoint: one line per arm, one column per budget, with intervals.
ReportTable means_by_budget(const Comparison& comparison, const ServedResult& result);
/// The measures beside the endpoint: one line per arm and budget. It has no rows if there are none.
ReportTable measures_beside_endpoint(const Comparison& comparison, const ServedResult& result);
/// Paired differences of one arm: one line per budget.
ReportTable differences_of(const Comparison& comparison, const ArmResult& arm, const std::string& reference);
/// Paired differences of all arms: one line per arm and budget.
ReportTable all_differences(const Comparison& comparison, const ServedResult& result, const std::string& reference);
/// Wins, losses and ties: one line per task, one column per arm. It has no columns if there is one arm.
ReportTable wins_and_losses(const ServedResult& result, const std::string& reference);
/// Costs: one line per arm.
ReportTable costs(const Comparison& comparison);

}  // namespace evenkeel::study
