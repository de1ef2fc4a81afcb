/// \file  Formats text tables that compare one or several runs, at most 80 columns wide.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::report {

/// Returns the names of the tables in the order of a report: runs; accuracy, invalid, valid, likelihood (multiple
/// choice); exact-match, f1, bert-score, empty (free text); nll, perplexity (likelihood); rounds, time, clients,
/// client-scores, traffic.
std::vector<std::string_view> table_names();

/// Formats one table. Task tables show the last evaluated round of every run. They have one line per task, one column
/// per budget, and the numbers of rows and distinct questions. Tables of multiple choice also have chance and majority.
/// \throws kConfig listing the names when `name` is unknown
std::string table(std::span<const records::RunRecords> runs, std::string_view name);

/// Formats what `evenkeel report` prints: the runs, the task tables with measured values, and the numbers of clients
/// whose scores became better or worse.
std::string default_tables(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::report
