/// \file  Writes report.html, a single file that opens offline. Script and style are in src/report/page/.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "comparison/compared_runs.h"

namespace evenkeel::report {

/// Makes the page of a study or of arms_of(). It opens on the endpoint of the study; if the study names none, on
/// default_endpoint(). Its sections are: differences between the runs (comparison/differences.h); means by budget with
/// 95 % intervals over seeds, and paired differences to the reference arm, for each measure and task; the runs; scores
/// against rounds, bytes, FLOPs and time; clients at their own budgets; training; expert utilisation as maps of layer x
/// expert, its entropy and Gini, and phi against it; cost; the meaning of each measure; the settled configs. Sections
/// without content are hidden. page_data() computes every number (report/page_data.h).
/// \throws kConfig if runs have scores, but none has the endpoint of the study
std::string report_page(const comparison::StudyRuns& study);
/// Makes the page of single runs, grouped by arms_of(). A run that repeats a seed of its arm begins an arm of its own.
std::string report_page(std::span<const records::RunRecords> runs);

/// Writes the page of run folders atomically. \throws as load_runs(); kIo when the file cannot be written
/// Example:  save_report({{"runs/demo"}}, "runs/demo/report.html");
void save_report(std::span<const std::filesystem::path> folders, const std::filesystem::path& file);

}  // namespace evenkeel::report
