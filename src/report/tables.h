/// \file  Text tables of one or several runs, side by side, at most about 120 columns wide.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/run_records.h"

namespace evenkeel {

/// Names of the tables, in the order of a report: runs; accuracy, invalid, valid, likelihood of choices; exact-match,
/// f1, bert-score, empty of free text; rounds, time, clients, client-scores, traffic.
std::vector<std::string_view> table_names();

/// One table. Task tables show the last evaluated round of every run, tasks down, budgets across, choices with chance
/// and majority, and how many rows and different questions a task has. \throws kConfig listing the names.
std::string table(std::span<const RunRecords> runs, std::string_view name);

/// What `evenkeel report` prints: the runs, then the task tables of what was measured, then who gains and who loses.
std::string default_tables(std::span<const RunRecords> runs);

}  // namespace evenkeel
