/// \file  Makes the tables of single runs, side by side.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {

/// Returns the names of the tables in the order of a report: runs; every measure of scoring/measures.h; rounds, time,
/// clients, client-scores, traffic, privacy.
std::vector<std::string_view> table_names();

/// Makes the tables with that name. The tables of a measure show the last evaluated round of every run, one for each
/// kind of tasks that has the measure. They have one line per task, one column per run and budget, and the numbers of
/// rows and distinct questions. Measures of multiple choice also have chance and majority.
/// \throws kConfig listing the names when `name` is unknown
std::vector<Table> tables(std::span<const records::RunRecords> runs, std::string_view name);

/// Makes the tables of a report on single runs: the runs, the measures with values, the scores of single clients (a
/// summary if there are more than 40) and, if runs were private, their privacy.
std::vector<Table> default_tables(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::report
