#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/output_paths.h"
#include "base/plain/files.h"
#include "fed/run/run_folder.h"
#include "report/differences.h"
#include "report/page.h"
#include "report/tables.h"

namespace evenkeel {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string html, table;
};

void run_report(const ReportFlags& flags) {
  const std::vector<fs::path> folders(flags.runs.begin(), flags.runs.end());
  if (!flags.html.empty()) {
    check_replaced_file("--html", flags.html);
    for (const auto& folder : folders) check_apart("--html", flags.html, files_of_run(folder));
  }
  const auto runs = load_runs(folders);
  if (!flags.html.empty()) write_file_atomic(flags.html, report_page(runs));
  std::cout << differences_text(runs) << (flags.table.empty() ? default_tables(runs) : table(runs, flags.table))
            << std::flush;
  if (!flags.html.empty()) std::cerr << "charts are in " << flags.html << '\n';
}

}  // namespace

void add_report_command(CLI::App& program) {
  auto flags = std::make_shared<ReportFlags>();
  auto* command = program.add_subcommand("report", "tables and charts of run folders, side by side");
  command->description(
      "Example: evenkeel report runs/demo-fedit runs/demo-ub-smoe --html runs/demo.html\n\n"
      "Prints tables of one or several runs, and first of all in what they differ beside their methods: arithmetic, "
      "threads,\n"
      "machine, files, gating. --html writes one file with charts that opens offline.");
  command->add_option("RUN", flags->runs, "run folders")->required();
  command->add_option("--html", flags->html, "write charts into this file");
  command->add_option("--table", flags->table, "print this table only: " + join(table_names()));
  command->callback([flags] { run_report(*flags); });
}

}  // namespace evenkeel
