/// \file  Makes the data of report.html: every number that the page draws, as JSON.
#pragma once

#include "base/plain/json.h"
#include "comparison/compared_runs.h"

namespace evenkeel::report {

/// Returns arms, runs, measures, tasks, budgets, differences between the runs, and the parts of report/page_parts.h.
/// The scripts of the page choose and draw; they compute no statistic.
/// \throws kConfig if runs have scores, but none has the endpoint of the study
OrderedJson page_data(const comparison::StudyRuns& study);

}  // namespace evenkeel::report
