// `evenkeel study`: executes every arm with every seed. The command can be stopped and resumed.
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output.h"
#include "apps/output_paths.h"
#include "apps/resume_flags.h"
#include "base/format/command_line.h"
#include "base/format/limits.h"
#include "base/plain/files.h"
#include "base/system/interrupt.h"
#include "study/running/forecast.h"
#include "study/running/run_study.h"
#include "study/running/study_check.h"

namespace evenkeel::apps {
namespace {

struct StudyFlags {
  MethodFlag method;
  std::string file, out, base;
  std::optional<std::string> shard;
  std::vector<std::string> settings, only;
  int64_t jobs = 1;
  bool dry_run = false, resume = false, while_read = false;
};

study::StudyCommand study_command_of(const StudyFlags& flags) {
  limits::check_integer("--jobs", flags.jobs, 1, limits::kThreads);
  return {.file = flags.file,
          .out = flags.out,
          .settings = flags.settings,
          .jobs = flags.jobs,
          .shard = flags.shard ? study::Shard::read(*flags.shard) : study::Shard(),
          .only = flags.only,
          .resume = flags.resume,
          .base = flags.base,
          .methods = flags.method.by_name()};
}

/// Returns the kind of error in the error line of a run, "[numeric] ..."; kIo if there is no line.
ErrorKind kind_of_line(const std::string& line) {
  for (const auto kind : {kConfig, kData, kCheckpoint, kShape, kNumeric, kIo, kInternal})
    if (line.starts_with(concat('[', to_string(kind), ']'))) return kind == kInternal ? kIo : kind;
  return kIo;
}

/// Prints the state of the study. \throws the error of the first failed run of `mine`, with the number of failed runs
/// \param mine  labels of the runs of this process
void conclude_study(const study::StudyState& state, const std::set<std::string>& mine, const std::string& again) {
  const auto done = state.count(study::RunState::kDone), failed = state.count(study::RunState::kFailed);
  std::cout << "study " << state.name << ": " << done << " of " << state.runs.size() << " runs done, " << failed
            << " failed, " << static_cast<int64_t>(state.runs.size()) - done - failed << " left\n"
            << std::flush;
  std::vector<const study::StudyRun*> mine_failed;
  for (const auto& run : state.runs)
    if (run.state == study::RunState::kFailed && mine.contains(run.label())) mine_failed.push_back(&run);
  if (mine_failed.empty()) return;
  const auto& first = *mine_failed.front();
  const auto line = first.error.value_or("failed");
  const auto text = line.starts_with('[') ? line.substr(line.find(' ') + 1) : line;
  fail(kind_of_line(line), mine_failed.size(), " of ", mine.size(), " runs failed, the first: ", first.label(), ": ",
       text, "; try again by: ", again);
}

/// Checks the runs, and prints what they need if only that is asked for.
void check(const study::StudyCommand& command, const study::StudyTask& task, bool print_needs) {
  study::DryRuns dry_runs(task);
  study::check_study(command, task, dry_runs);
  if (print_needs) std::cout << study::forecast_text(command, task, study::foresee(task, dry_runs)) << std::flush;
}

void run_study_command(const StudyFlags& flags) {
  const auto command = study_command_of(flags);
  check_base_flag(flags.base, flags.resume);
  watch_interrupts();
  if (!flags.out.empty()) check_not_kept("--out", flags.out);
  auto task = study::plan_study(command);
  check_not_kept("--out", task.study.folder);
  check(command, task, flags.dry_run);
  if (flags.dry_run) return;
  const auto folder = task.study.folder;
  const NewFolders folders(folder);
  const auto labels = task.labels();
  const auto again = command_line(study::resume_words(command, folder));
  const auto stop = [&] { return interrupt_requested() || (flags.while_read && reader_gone()); };
  try {
    conclude_study(study::run_study(command, std::move(task), stop), {labels.begin(), labels.end()}, again);
  } catch (const Error& error) {
    if (!is_full_disk(error)) throw;
    throw error.with_advice(concat("what is done stays; make room, then: ", again));
  }
  std::cerr << "the study is in " << folder.string() << ", see it by: " << command_line({"report", folder.string()})
            << '\n';
}

}  // namespace

void add_study_command(CLI::App& program) {
  auto flags = std::make_shared<StudyFlags>();
  auto* command = program.add_subcommand("study", "compare methods over seeds: every arm with every seed");
  command->footer(
      "Example: evenkeel study studies/methods.toml --jobs 2\n"
      "         evenkeel study studies/methods.toml --dry-run\n"
      "         evenkeel study studies/methods.toml --out runs/methods --shard 2/4 --resume\n\n"
      "Makes every run of a study, each in a folder of its own below --out, as `evenkeel train` does. A study that was "
      "stopped goes on by --resume, to the same bits; runs that failed are tried again. docs/studies.md has the file's "
      "keys.");
  command->add_option("STUDY", flags->file, "TOML file with [study] and its arms")->required();
  command->add_option("--out", flags->out, "folder of the study, new or empty (default: runs/<name>)");
  command->add_option("--set", flags->settings, "a.b=value, changes one key of every arm; as often as needed");
  flags->method.add_to(*command, "that arms name; as often as needed");
  command->add_option("--jobs", flags->jobs,
                      "runs at once, each with its share of the cores, or with a GPU of its own (default: 1)");
  command->add_option("--shard", flags->shard, "i/n: every n-th run alone, for job arrays; --dry-run prints one");
  command->add_option("--only", flags->only, "ARM:SEED: this run alone; as often as needed");
  command->add_flag(
      "--dry-run", flags->dry_run,
      "check all runs, print their number, time, FLOPs, memory and disk and the command of a job array, and "
      "stop");
  command->add_flag("--resume", flags->resume, "resume the study in the folder, or start it if there is none");
  command->add_flag("--while-read", flags->while_read,
                    "stop, with the state saved, when nobody reads standard output any more");
  add_base_flag(*command, flags->base, "--resume");
  command->callback([flags] { run_study_command(*flags); });
}

}  // namespace evenkeel::apps
