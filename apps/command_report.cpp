#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/output_paths.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
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
  std::vector<std::string> tasks;
  std::vector<double> budgets;
};

const std::vector<std::string> kFormats{"text", "md", "latex", "csv", "json", "html"};

/// The content of a report: the runs of a study, or run folders that are grouped into arms.
struct Reported {
  std::vector<records::RunRecords> runs;  ///< the runs that are not missing
  comparison::StudyRuns arms;
  bool is_study = false;
  std::optional<comparison::Comparison> comparison{};  ///< empty: nothing is evaluated yet
};

Reported read_study(const ReportFlags& flags) {
  EK_CHECK(flags.folders.size() == 1, kConfig, flags.folders.size(),
           " folders, one of which holds a study: a study is reported alone");
  auto arms = study::load_study(flags.folders[0]);
  auto runs = arms.records();
  return {std::move(runs), std::move(arms), true};
}

Reported read_runs(const ReportFlags& flags) {
  const std::vector<fs::path> folders(flags.folders.begin(), flags.folders.end());
  Reported reported{.runs = records::load_runs(folders), .arms = {}};
  reported.arms = comparison::arms_of(reported.runs);
  reported.arms.endpoint = comparison::default_endpoint(reported.runs);
  return reported;
}

bool is_evaluated(const records::RunRecords& run) { return run.last_evaluated() >= 0; }

/// Reads the folders and compares their runs. A study is compared even if nothing is evaluated, which is an error.
Reported read_folders(const ReportFlags& flags) {
  const bool is_study = std::any_of(flags.folders.begin(), flags.folders.end(),
                                    [](const auto& folder) { return study::holds_study(folder); });
  auto reported = is_study ? read_study(flags) : read_runs(flags);
  if (!flags.endpoint.empty()) reported.arms.endpoint = flags.endpoint;
  const bool evaluated = std::any_of(reported.runs.begin(), reported.runs.end(), is_evaluated);
  const bool needs_values = flags.format == "csv" || flags.format == "json";
  if (flags.table.empty() && flags.format != "html" && (is_study || evaluated || needs_values))
    reported.comparison = comparison::compare(reported.arms, {.tasks = flags.tasks, .budgets = flags.budgets});
  return reported;
}

std::string comparison_of(const Reported& reported, const std::string& format) {
  const auto& [runs, arms, is_study, comparison] = reported;
  if (!comparison) return "";
  if (format == "csv") return report::csv_report(arms, *comparison);
  if (format == "json") return report::json_report(arms, *comparison);
  if (format == "md") return report::markdown_report(arms, *comparison);
  return format == "latex" ? report::latex_report(arms, *comparison) : report::text_report(arms, *comparison);
}

/// Returns the tables of single runs: those of `--table`, or of run folders after their comparison.
std::vector<report::Table> run_tables(const Reported& reported, const ReportFlags& flags) {
  if (!flags.table.empty()) return report::tables(reported.runs, flags.table);
  return reported.is_study ? std::vector<report::Table>() : report::default_tables(reported.runs);
}

std::string formatted(std::span<const report::Table> tables, const std::string& format) {
  if (format == "text") return report::text_of(tables);
  std::string text;
  for (const auto& table : tables)
    text += concat(text.empty() ? "" : "\n", format == "md" ? report::markdown_of(table) : report::latex_of(table));
  return text;
}

std::string report_of(const Reported& reported, const ReportFlags& flags) {
  if (flags.format == "html") return report::report_page(reported.arms);
  auto text = comparison_of(reported, flags.format);
  if (flags.format == "csv" || flags.format == "json") return text;
  if (!flags.table.empty() && flags.format == "text")
    text += report::differences_text(comparison::differences(reported.runs, reported.arms.free));
  const auto tables = formatted(run_tables(reported, flags), flags.format);
  return text + (text.empty() || tables.empty() ? "" : "\n") + tables;
}

void check_flags(const ReportFlags& flags) {
  EK_CHECK(std::find(kFormats.begin(), kFormats.end(), flags.format) != kFormats.end(), kConfig, "--format is \"",
           shown(flags.format), "\", allowed: ", join(kFormats));
  const bool is_paper = flags.table.starts_with("paper:");
  EK_CHECK(!is_paper || flags.html.empty(), kConfig, "--table ", flags.table,
           " makes no page: it does not go with --html");
  EK_CHECK(flags.table.empty() || flags.format == "text" || flags.format == "md" || flags.format == "latex", kConfig,
           "--table ", shown(flags.table), " is printed as --format text, md or latex");
  EK_CHECK(flags.table.empty() || flags.endpoint.empty(), kConfig,
           "--table prints tables of single runs or of the paper: it does not go with --endpoint");
  if (!flags.endpoint.empty()) scoring::find_measure(flags.endpoint);
  const bool narrowed = !flags.tasks.empty() || !flags.budgets.empty();
  EK_CHECK(!narrowed || (flags.table.empty() && flags.html.empty() && flags.format != "html"), kConfig,
           "--task and --budget narrow the comparison: they do not go with --table, --html or --format html");
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
  std::vector<report::Table> reports{study::paper_report(table, results)};
  for (auto& costs : study::paper_costs_by_k(table, studies)) reports.push_back(std::move(costs));
  std::cout << formatted(reports, flags.format) << (flags.format == "md" ? "\n" : "");
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
  check_page(flags);
  const auto reported = read_folders(flags);
  if (!flags.html.empty()) write_file_atomic(link_target(flags.html), report::report_page(reported.arms));
  std::cout << report_of(reported, flags) << std::flush;
  if (!flags.html.empty()) std::cerr << "charts are in " << flags.html << '\n';
}

}  // namespace

void add_report_command(CLI::App& program) {
  auto flags = std::make_shared<ReportFlags>();
  auto* command = program.add_subcommand("report", "tables and charts of run folders, side by side, or of a study");
  command->footer(
      "Example: evenkeel report runs/demo-fedit runs/demo-ub-smoe --html runs/demo.html\n\n"
      "Prints what was shown, of a study's folder and of run folders alike: in what the runs differ beside their "
      "methods\n"
      "(gating, arithmetic, files and so on), means per arm and budget, differences to the reference paired by seed, "
      "their\n"
      "intervals, and costs (docs/study-statistics.md). Run folders that differ in their seeds alone are one arm; the "
      "first\n"
      "arm is the reference. Tables of the single runs follow. --html writes one file with charts that opens offline.");
  command
      ->add_option("FOLDER", flags->folders,
                   "run folders, or one study's folder; of a table of the paper, folders of its studies")
      ->required();
  command->add_option("--html", flags->html, "write charts into this file");
  command->add_option("--table", flags->table,
                      "print this table only: " + join(report::table_names()) +
                          "; or of studies paper:ID, a table of the paper (evenkeel list tables)");
  command->add_option("--format", flags->format, join(kFormats) + "; html: the page with charts")
      ->capture_default_str();
  command->add_option("--endpoint", flags->endpoint,
                      "compare by this measure instead of the study's, for example accuracy or f1");
  command->add_option("--task", flags->tasks,
                      "compare by this task's scores only; may be repeated (default: all tasks)");
  command->add_option("--budget", flags->budgets,
                      "compare at this budget only; may be repeated (default: all budgets)");
  command->callback([flags] { run_report(*flags); });
}

}  // namespace evenkeel::apps
