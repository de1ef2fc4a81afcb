/// \file  Writes report.html, a single file that opens offline. It contains the charts' library (chart.js), script and
/// style.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "report/run_records.h"

namespace evenkeel {

/// Makes the page. Its sections are: differences between the runs (report/differences.h); the runs; accuracy by budget
/// and by round, per task, with chance, majority, rows and questions; clients at their own budgets; training loss;
/// scores and loss against bytes and, if time is simulated, against time; expert utilisation (layer x expert) over
/// rounds, its entropy and Gini; bytes and FLOPs per round; the resolved configs. Empty sections are hidden.
std::string report_page(std::span<const RunRecords> runs);

/// Writes the page of run folders atomically. Example:  save_report({{"runs/demo"}}, "runs/demo/report.html");
void save_report(std::span<const std::filesystem::path> folders, const std::filesystem::path& file);

}  // namespace evenkeel
