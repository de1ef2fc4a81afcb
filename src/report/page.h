/// \file  Writes report.html, a single file that opens offline. Script and style are in src/report/page/.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::report {

/// The study that the runs of a page belong to.
struct StudyOfPage {
  std::string name, reference;      ///< reference: the arm that others are compared with
  std::vector<std::string> free{};  ///< keys and sections of the config in which arms may differ
};

/// Makes the page. It groups runs by method, one run per seed, or by arm if the runs belong to a study. Its sections
/// are: differences between the runs (comparison/differences.h); scores by budget with 95 % intervals over seeds, and
/// paired differences to the reference arm, for each task; the runs; scores against rounds, bytes, FLOPs and time;
/// clients at their own budgets; training; expert utilisation as maps of layer x expert, its entropy and Gini, and phi
/// against it; cost; the meaning of each measure; the settled configs. Sections without content are hidden.
std::string report_page(std::span<const records::RunRecords> runs,
                        const std::optional<StudyOfPage>& study = std::nullopt);

/// Writes the page of run folders atomically. \throws as load_runs(); kIo when the file cannot be written
/// Example:  save_report({{"runs/demo"}}, "runs/demo/report.html");
void save_report(std::span<const std::filesystem::path> folders, const std::filesystem::path& file);

}  // namespace evenkeel::report
