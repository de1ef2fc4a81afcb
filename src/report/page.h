/// \file  report.html: one file that opens offline. Charts by chart.js, inlined with the page's own script and style.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "report/run_records.h"

namespace evenkeel {

/// The page. Sections: in what the runs are not alike beside their methods (report/differences.h), hidden when in
/// nothing; runs; accuracy by budget and by round, per task, with chance, majority, rows and questions; clients at
/// their own budgets, hidden when none is scored; training loss; scores and loss against bytes and, where devices are
/// simulated, against time; expert utilisation (layer x expert) over rounds, its entropy and Gini; bytes and FLOPs per
/// round; the resolved configs.
std::string report_page(std::span<const RunRecords> runs);

/// Writes the page of these run folders atomically. Example:  save_report({{"runs/demo"}}, "runs/demo/report.html");
void save_report(std::span<const std::filesystem::path> folders, const std::filesystem::path& file);

}  // namespace evenkeel
