/// \file  Tables of what runs spent of their privacy budgets, and of how much signal their noise left.
#pragma once

#include <span>

#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {

/// Returns a line per private round, or per run with its last private round. Values of simulated runs are in brackets.
/// \param all_rounds  true: all rounds
Table privacy_table(std::span<const records::RunRecords> runs, bool all_rounds);

}  // namespace evenkeel::report
