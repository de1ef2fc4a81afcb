#include <array>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/fetched_model.h"
#include "apps/output_paths.h"
#include "apps/real_demo.h"
#include "base/format/command_line.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/os_error.h"
#include "base/system/interrupt.h"
#include "fed/run/training_run.h"
#include "report/demo_summary.h"
#include "report/differences_text.h"
#include "report/page.h"
#include "report/score_table.h"
#include "report/tables.h"

namespace evenkeel::apps {
namespace {

struct DemoFlags {
  std::string out, model;
  bool full = false, real = false, yes = false;
};

struct DemoMethod {
  const char *name, *title;
};
constexpr std::array kDemoMethods{DemoMethod{"fedit", "FedIT"}, DemoMethod{"ub-smoe", "UB-SMoE"}};

/// A temporary folder. The destructor removes it.
class RemovedFolder {
 public:
  RemovedFolder() {
    std::string name = (temporary_folder("--out names another") / "evenkeel-demo-XXXXXX").string();
    EK_CHECK(::mkdtemp(name.data()) != nullptr, kIo, name, ": cannot be made: ", os_error_text(errno),
             "; --out names another");
    path_ = name;
  }
  ~RemovedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  RemovedFolder(const RemovedFolder&) = delete;
  RemovedFolder& operator=(const RemovedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path demo_run(const fs::path& folder, const DemoMethod& method) { return folder / concat("demo-", method.name); }

void check_demo_folder(const fs::path& folder) {
  check_output_folder("--out", folder);
  if (is_folder(folder)) check_replaced_file("--out", folder / "demo.html");
  for (const auto& method : kDemoMethods)
    EK_CHECK(!fs::exists(demo_run(folder, method)), kIo, demo_run(folder, method).string(),
             " exists already; remove it, or name another folder by --out");
}

std::vector<scoring::TaskScore> train_demo(const std::string& config, const fs::path& folder,
                                           const DemoMethod& method) {
  auto run = fed::begin_run({.file = shipped_folder() / "configs" / config,
                             .settings = {concat("method.name=", method.name), "evaluate.before=true"},
                             .out = demo_run(folder, method).string()});
  auto scores = fed::complete_run(run.experiment.server, run.experiment.fabric, run.folder, interrupt_requested);
  report::save_report(std::array{run.folder.path()}, run.folder.path() / "report.html");
  return scores;
}

std::vector<records::RunRecords> demo_runs(const fs::path& folder) {
  std::vector<fs::path> runs;
  for (const auto& method : kDemoMethods) runs.push_back(demo_run(folder, method));
  write_file_atomic(folder / "demo.html", report::report_page(records::load_runs(runs)));
  return records::load_runs(runs);
}

std::string sentence_of(const std::vector<records::RunRecords>& runs) {
  std::vector<report::DemoLine> lines;
  for (size_t i = 0; i < runs.size(); ++i)
    lines.push_back(report::demo_line(kDemoMethods.at(i).title, runs[i], runs[i].last_evaluated()));
  return report::demo_sentence(report::demo_line("before", runs[0], 0), lines.at(0), lines.at(1), runs[0]);
}

constexpr std::string_view kQuickTitle =
    "Eight clients with 1/8 to all of the experts fine-tune the built-in model together: 800 rows, 4 rounds.\n"
    "Accuracy in percent, mean over five tasks, with K experts per token:\n\n";

/// Prints the line of a run in the table, after the first run also the title and the line before training.
void print_quick_row(const DemoMethod& method, const records::RunRecords& run, bool first) {
  if (first)
    std::cout << kQuickTitle << report::demo_titles(run)
              << report::demo_row(report::demo_line("before training", run, 0));
  std::cout << report::demo_row(report::demo_line(method.title, run, run.last_evaluated())) << std::flush;
}

void run_quick_demo(const fs::path& folder) {
  std::cerr << "the built-in model is trained by two methods; the first line of the table takes about 20 s\n";
  for (const auto& method : kDemoMethods) {
    train_demo("quick-demo.toml", folder, method);
    print_quick_row(method, records::load_run(demo_run(folder, method)), &method == kDemoMethods.data());
  }
  const auto runs = demo_runs(folder);
  std::cout << report::demo_row(report::majority_line(runs[0])) << '\n' << sentence_of(runs);
}

void run_full_demo(const fs::path& folder) {
  for (const auto& method : kDemoMethods) {
    std::cout << "== " << method.name << ": eight unequal clients, budgets 1/8 to 1\n" << std::flush;
    std::cout << report::score_text(train_demo("demo.toml", folder, method)) << std::flush;
  }
  const auto runs = demo_runs(folder);
  std::cout << "== side by side\n"
            << report::differences_text(comparison::differences(runs)) << report::text_of(report::default_tables(runs))
            << '\n'
            << sentence_of(runs);
}

fs::path real_run(const fs::path& folder) { return folder / "four-organisations"; }

/// Returns what to do after the demo on a trained model. \param kept  whether the run is kept in `folder`
std::string line_after_real(const fs::path& folder, bool kept) {
  if (!kept)
    return concat("What to do next: ", command_line({"demo", "--real", "--out", "runs"}),
                  " keeps the run, so that you can ask it; docs/your-data.md does the same with your rows.\n");
  const auto run = real_run(folder);
  return concat("What to do next: open ", (run / "report.html").string(),
                ", or ask the model: ", command_line({"generate", "--run", run.string(), "--prompt", "..."}), "\n");
}

std::string next_line(const DemoFlags& flags, const fs::path& folder) {
  if (!flags.full)
    return concat("What to do next: ", command_line({"demo", "--full", "--out", "runs"}),
                  " takes some minutes and leaves both runs and a page of charts; every command explains itself by "
                  "--help.\n");
  return concat("What to do next: open ", (folder / "demo.html").string(), ", or ask the model: ",
                command_line({"generate", "--run", demo_run(folder, kDemoMethods[1]).string(), "--prompt", "..."}),
                "\n");
}

void run_on_trained_model(const DemoFlags& flags) {
  std::optional<RemovedFolder> removed;
  if (!flags.out.empty()) check_output_folder("--out", flags.out);
  const fs::path folder = !flags.out.empty() ? fs::path(flags.out) : removed.emplace().path();
  EK_CHECK(!fs::exists(real_run(folder)), kIo, real_run(folder).string(),
           " exists already; remove it, or name another folder by --out");
  const auto model = find_or_fetch_smollm2(flags.model, flags.yes);
  watch_interrupts();
  const NewFolders folders(folder);
  run_real_demo(model, real_run(folder));
  std::cout << line_after_real(folder, !removed) << std::flush;
}

void run_demo(const DemoFlags& flags) {
  EK_CHECK(flags.real || (flags.model.empty() && !flags.yes), kConfig, "--model and --yes go with --real");
  EK_CHECK(!flags.real || !flags.full, kConfig, "--full goes without --real");
  if (flags.real) return run_on_trained_model(flags);
  watch_interrupts();
  std::optional<RemovedFolder> removed;
  const fs::path folder = !flags.out.empty() ? fs::path(flags.out)
                          : flags.full       ? fs::path("runs")
                                             : removed.emplace().path();
  check_demo_folder(folder);
  const NewFolders folders(folder);
  flags.full ? run_full_demo(folder) : run_quick_demo(folder);
  if (!removed && !flags.full) std::cout << "The runs and their charts: " << (folder / "demo.html").string() << '\n';
  std::cout << next_line(flags, folder) << std::flush;
}

}  // namespace

void add_demo_command(CLI::App& program) {
  auto flags = std::make_shared<DemoFlags>();
  auto* command = program.add_subcommand("demo", "two methods on the built-in model, in a minute; no file is needed");
  command->footer(
      "Example: evenkeel demo\n"
      "         evenkeel demo --full --out runs\n"
      "         evenkeel demo --real\n\n"
      "Trains eight unequal clients with FedIT and with UB-SMoE on generated tasks and prints their accuracy at every "
      "number of experts per token. It needs no network, and leaves nothing behind without --out. "
      "With --real four organisations teach a trained language model, SmolLM2-135M-Instruct, facts that no one else "
      "has, in two to five minutes; if the model is not there, it says what it will fetch (93 MB) and asks.");
  command->add_flag("--full", flags->full, "the runs of configs/demo.toml, with all tables (some minutes)");
  command->add_flag("--real", flags->real,
                    "the demo on a trained language model (some minutes; 93 MB are fetched once)");
  command->add_option("--model", flags->model,
                      "with --real: folder of the model (default: models/SmolLM2-135M-Instruct, fetched if missing)");
  command->add_flag("--yes", flags->yes, "with --real: fetch the model without asking");
  command->add_option("--out", flags->out, "keep the runs and their charts here (default: none; runs with --full)");
  command->callback([flags] { run_demo(*flags); });
}

}  // namespace evenkeel::apps
