#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/output_paths.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "fed/run/run_folder.h"
#include "report/differences_text.h"
#include "report/page.h"
#include "report/study_report.h"
#include "report/tables.h"
#include "study/definition/load_study.h"
#include "study/definition/study_state.h"
#include "study/paper/paper_comparison.h"
#include "study/paper/paper_costs.h"

namespace evenkeel::apps {
namespace {

struct ReportFlags {
  std::vector<std::string> folders;
  std::string html, table, format = "text", endpoint;
};

const std::vector<std::string> kFormats{"text", "md", "latex", "csv", "json", "html"};

std::string compared(const comparison::StudyRuns& runs, const std::string& format) {
  if (format == "csv") return report::csv_report(runs);
  const auto comparison = comparison::compare(runs);
  if (format == "md") return report::markdown_report(runs, comparison);
  if (format == "latex") return report::latex_report(runs, comparison);
  return format == "json" ? report::json_report(runs, comparison) : report::text_report(runs, comparison);
}

/// The content of a report: run folders, or the runs of a study.
struct Reported {
  std::vector<records::RunRecords> runs;  ///< the runs that are not missing
  comparison::StudyRuns arms;
  bool is_study = false;
};

Reported read_study(const ReportFlags& flags) {
  EK_CHECK(flags.folders.size() == 1, kConfig, flags.folders.size(),
           " folders, one of which holds a study: a study is reported alone");
  auto arms = study::load_study(flags.folders[0]);
  if (!flags.endpoint.empty()) arms.endpoint = flags.endpoint;
  auto runs = arms.records();
  return {std::move(runs), std::move(arms), true};
}

Reported read_runs(const ReportFlags& flags) {
  const std::vector<fs::path> folders(flags.folders.begin(), flags.folders.end());
  Reported reported{.runs = records::load_runs(folders), .arms = {}};
  if (flags.format == "html" || (flags.format == "text" && flags.endpoint.empty())) return reported;
  reported.arms = comparison::arms_of(reported.runs);
  reported.arms.endpoint = flags.endpoint.empty() ? comparison::default_endpoint(reported.runs) : flags.endpoint;
  return reported;
}

/// Makes the page. Run folders may repeat a seed: the runs that do are arms of their own.
std::string page_of(const Reported& reported, const ReportFlags& flags) {
  if (reported.is_study) return report::report_page(reported.arms);
  auto arms = comparison::arms_of(reported.runs, comparison::RepeatedSeeds::kApart);
  arms.endpoint = flags.endpoint;
  return report::report_page(arms);
}

std::string tables_of(const Reported& reported, const ReportFlags& flags) {
  if (!flags.table.empty()) return report::differences_text(reported.runs) + report::table(reported.runs, flags.table);
  if (flags.format == "html") return page_of(reported, flags);
  const bool of_runs = !reported.is_study && flags.format == "text" && flags.endpoint.empty();
  return of_runs ? report::differences_text(reported.runs) + report::default_tables(reported.runs)
                 : compared(reported.arms, flags.format);
}

void check_flags(const ReportFlags& flags) {
  EK_CHECK(std::find(kFormats.begin(), kFormats.end(), flags.format) != kFormats.end(), kConfig, "--format is \"",
           shown(flags.format), "\", allowed: ", join(kFormats));
  const bool is_paper = flags.table.starts_with("paper:");
  EK_CHECK(!is_paper || flags.html.empty(), kConfig, "--table ", flags.table,
           " makes no page: it does not go with --html");
  EK_CHECK(!is_paper || flags.format == "text" || flags.format == "md" || flags.format == "latex", kConfig, "--table ",
           flags.table, " is printed as --format text, md or latex");
  EK_CHECK(flags.table.empty() || (flags.endpoint.empty() && (is_paper || flags.format == "text")), kConfig,
           "--table prints text of single runs: it goes with neither --format nor --endpoint");
  if (!flags.endpoint.empty()) scoring::find_measure(flags.endpoint);
}

/// Returns the files that the report of a folder reads.
std::vector<fs::path> files_reported(const fs::path& folder) {
  if (!study::holds_study(folder)) return fed::files_of_run(folder);
  std::vector<fs::path> files;
  for (const auto name : {study::kStateFile, study::kStudyFile, study::kBaseFile}) files.push_back(folder / name);
  for (const auto& run : study::read_state(folder).runs)
    for (auto& file : fed::files_of_run(folder / run.folder)) files.push_back(std::move(file));
  return files;
}

/// Checks that the page does not replace a file of a run or a study.
void check_page(const ReportFlags& flags) {
  if (flags.html.empty()) return;
  check_replaced_file("--html", flags.html);
  for (const auto& folder : flags.folders) check_apart("--html", flags.html, files_reported(folder));
}

constexpr std::string_view kPaperTable = "paper:";

/// Prints a table of the paper next to the results of the studies in the folders.
void run_paper_table(const ReportFlags& flags) {
  const auto table = study::find_paper_table(std::string_view(flags.table).substr(kPaperTable.size()));
  std::vector<comparison::StudyRuns> studies;
  for (const auto& folder : flags.folders) studies.push_back(study::load_study(folder));
  const auto results = study::paper_results(table, studies);
  const auto sentences = study::paper_sentences(table, results);
  std::vector<report::ReportTable> reports{study::paper_report(table, results)};
  for (auto& costs : study::paper_costs_by_k(table, studies)) reports.push_back(std::move(costs));
  for (const auto& report : reports) {
    if (flags.format == "text") std::cout << report::text_of(report) << (&report == &reports.back() ? "" : "\n");
    if (flags.format == "md") std::cout << report::markdown_of(report) << '\n';
    if (flags.format == "latex") std::cout << report::latex_of(report);
  }
  for (const auto& sentence : sentences) {
    if (flags.format == "text") std::cout << report::wrapped(sentence);
    if (flags.format == "md") std::cout << "- " << sentence << '\n';
    if (flags.format == "latex") std::cout << "% " << sentence << '\n';
  }
  std::cout << std::flush;
}

void run_report(const ReportFlags& flags) {
  check_flags(flags);
  if (flags.table.starts_with(kPaperTable)) return run_paper_table(flags);
  const bool is_study = std::any_of(flags.folders.begin(), flags.folders.end(),
                                    [](const auto& folder) { return study::holds_study(folder); });
  check_page(flags);
  const auto reported = is_study ? read_study(flags) : read_runs(flags);
  if (!flags.html.empty()) write_file_atomic(flags.html, page_of(reported, flags));
  std::cout << tables_of(reported, flags) << std::flush;
  if (!flags.html.empty()) std::cerr << "charts are in " << flags.html << '\n';
}

}  // namespace

void add_report_command(CLI::App& program) {
  auto flags = std::make_shared<ReportFlags>();
  auto* command = program.add_subcommand("report", "tables and charts of run folders, side by side, or of a study");
  command->footer(
      "Example: evenkeel report runs/demo-fedit runs/demo-ub-smoe --html runs/demo.html\n\n"
      "Prints tables of one or several runs, and first of all in what they differ beside their methods: arithmetic, "
      "threads,\n"
      "machine, files, gating. --html writes one file with charts that opens offline.\n"
      "Of a study's folder it prints what was shown: means per arm and budget, differences to the reference paired by "
      "seed,\n"
      "their intervals, and costs (docs/study-statistics.md). With --endpoint, or --format md, latex, csv or json, "
      "run\n"
      "folders are compared in the same way: those that differ in their seeds alone are one arm, the first is the "
      "reference.");
  command->add_option("FOLDER", flags->folders, "run folders, or one study's folder")->required();
  command->add_option("--html", flags->html, "write charts into this file");
  command->add_option("--table", flags->table,
                      "print this table only: " + join(report::table_names()) +
                          "; or of studies paper:ID, a table of the paper (evenkeel list tables)");
  command->add_option("--format", flags->format, join(kFormats) + "; html: the page with charts")
      ->capture_default_str();
  command->add_option("--endpoint", flags->endpoint,
                      "compare by this measure instead of the study's, for example accuracy or f1");
  command->callback([flags] { run_report(*flags); });
}

}  // namespace evenkeel::apps
