#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/method_flag.h"
#include "apps/model_options.h"
#include "apps/output.h"
#include "apps/output_paths.h"
#include "apps/progress_flag.h"
#include "apps/resume_flags.h"
#include "base/format/command_line.h"
#include "base/format/limits.h"
#include "base/plain/files.h"
#include "base/system/events.h"
#include "base/system/interrupt.h"
#include "cluster/ranks.h"
#include "cluster/scratch.h"
#include "cluster/spawn.h"
#include "fed/config/arithmetic.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/training_run.h"
#include "report/client_scores.h"
#include "report/page.h"
#include "report/score_table.h"

namespace evenkeel::apps {
namespace {

struct TrainFlags {
  std::string config, out, base, device, progress = "text";
  std::vector<std::string> settings;
  int64_t threads = 0, ranks = 1;
  std::optional<int64_t> from_round;
  MethodFlag method;
  bool resume = false, print_config = false;
};

fed::RunRequest request_of(const TrainFlags& flags) {
  fed::RunRequest request{
      .file = flags.config, .settings = flags.method.settings(), .out = flags.out, .base = flags.base};
  request.changed_method = flags.method.changed;
  request.settings.insert(request.settings.end(), flags.settings.begin(), flags.settings.end());
  if (!flags.device.empty()) request.settings.push_back(concat("model.device=\"", flags.device, "\""));
  if (flags.threads > 0) request.settings.push_back(concat("threads=", flags.threads));
  return request;
}

void check(const TrainFlags& flags) {
  limits::check_integer("--threads", flags.threads, 0, limits::kThreads);
  limits::check_integer("--ranks", flags.ranks, 1, limits::kThreads);
  check_from_round(flags.from_round, flags.resume);
  check_base_flag(flags.base, flags.resume);
  EK_CHECK(!flags.method.changed || flags.resume, kConfig, "--changed-method goes with --resume");
  flags.method.check_choice(flags.config, flags.settings);
}

fed::Run open_run(const TrainFlags& flags, const fed::RunHooks& hooks = {}) {
  return flags.resume ? fed::resume_run(request_of(flags), flags.from_round, hooks)
                      : fed::begin_run(request_of(flags), hooks);
}

/// Returns the rank of this process. With --ranks it starts the ranks as child processes.
cluster::Launch launched(const TrainFlags& flags, const cluster::ClusterOptions& options) {
  auto launch = cluster::find_launch(options);
  EK_CHECK(flags.ranks <= 1 || launch.size == 1, kConfig, "--ranks is ", flags.ranks, ", but ", launch.launcher,
           " has started ", launch.size, " ranks: one of the two");
  EK_CHECK((flags.ranks <= 1 && launch.size == 1) || cluster::has_gloo(), kConfig,
           "several ranks need a LibTorch with Gloo, and this program was built without");
  if (flags.ranks > 1) cluster::scratch_folder(options);  // said once, before there are ranks
  return flags.ranks > 1 ? cluster::spawn(static_cast<int>(flags.ranks), options.regroup) : launch;
}

std::string folder_of(const TrainFlags& flags) {
  return flags.out.empty() ? request_of(flags).config().folder().string() : flags.out;
}

/// Returns true for a setting that holds for one process only, so that a resume command must repeat it
/// (fed/run/training_run.h).
bool is_arithmetic(const std::string& setting) {
  const auto& keys = fed::kArithmeticKeys;
  return std::any_of(keys.begin(), keys.end(),
                     [&](std::string_view key) { return fed::gives(std::span(&setting, 1), key); });
}

/// Returns the command that resumes the run, or starts it again if none has begun.
std::string next_command(const TrainFlags& flags) {
  const bool began = fed::holds_run(folder_of(flags));
  std::vector<std::string> words{"train", flags.config};
  const auto method = flags.method.words();
  words.insert(words.end(), method.begin(), method.end());
  for (const auto& setting : flags.settings)
    if (!began || (flags.resume && is_arithmetic(setting))) words.insert(words.end(), {"--set", setting});
  if (!flags.device.empty() && (!began || flags.resume)) words.insert(words.end(), {"--device", flags.device});
  if (flags.threads > 0 && !began) words.insert(words.end(), {"--threads", std::to_string(flags.threads)});
  if (flags.ranks > 1) words.insert(words.end(), {"--ranks", std::to_string(flags.ranks)});
  words.insert(words.end(), {"--out", folder_of(flags)});
  if (began) words.emplace_back("--resume");
  return command_line(words);
}

/// Prints the table on stdout and the next steps on stderr, or writes the last event.
void conclude(const TrainFlags& flags, const fed::Run& run, const std::vector<scoring::TaskScore>& scores) {
  const auto folder = run.folder.path().string();
  report::save_report(std::array{run.folder.path()}, run.folder.path() / "report.html");
  if (events::wanted())
    return events::write("done", {{"run", folder}, {"report", folder + "/report.html"}, {"exit_code", 0}});
  std::cout << report::score_text(scores);
  for (const auto& line : report::clients_summary(records::load_run(run.folder.path()))) std::cout << line << '\n';
  std::cout << std::flush;
  std::vector<std::string> words{"generate", "--run", folder, "--prompt", "..."};
  const auto method = flags.method.words();
  words.insert(words.end(), method.begin(), method.end());
  std::cerr << "the run is in " << folder << ", its report is " << folder
            << "/report.html\ntry the model: " << command_line(words) << '\n';
}

void start_events(const TrainFlags& flags) try {
  events::start({{"run", folder_of(flags)}});
} catch (const std::ios_base::failure&) {
  if (!reader_gone()) throw;
  throw Interrupted(concat("nobody reads standard output; begin with: ", next_command(flags)));
}

/// Trains and concludes. An interruption, a reader of stdout that goes away before the run is done, and a full disk are
/// reported with the command that resumes the run.
void train_and_conclude(const TrainFlags& flags, const cluster::Launch& launch,
                        const cluster::ClusterOptions& options) {
  bool done = false;
  const auto finish = [&](const fed::Run& run, const std::vector<scoring::TaskScore>& scores) {
    done = true;
    conclude(flags, run, scores);
  };
  const auto resume = [&] {
    const bool saved = fed::holds_run(folder_of(flags));
    return concat(saved ? ", the state is saved; resume with: " : ", before there was anything to save; begin with: ",
                  next_command(flags));
  };
  try {
    if (launch.size > 1)
      return cluster::lead(
          launch, options, [&](const fed::RunHooks& hooks) { return open_run(flags, hooks); }, interrupt_requested,
          finish);
    auto run = open_run(flags);
    finish(run, fed::complete_run(run.experiment.server, run.experiment.fabric, run.folder, interrupt_requested));
  } catch (const Interrupted& interrupted) {
    throw Interrupted(concat(interrupted.what(), resume()));
  } catch (const std::ios_base::failure&) {
    if (done || !reader_gone()) throw;
    throw Interrupted(concat("nobody reads standard output any more", resume()));
  } catch (const Error& error) {
    if (!is_full_disk(error)) throw;
    throw error.with_advice(concat("what is committed stays; make room, then: ", next_command(flags)));
  }
}

void run_train(const TrainFlags& flags) {
  if (wants_events(flags.progress)) events::begin("train");
  check(flags);
  const auto options = cluster::ClusterOptions::of(request_of(flags));
  if (flags.print_config) {
    std::cout << request_of(flags).config().text(true) << '\n' << options.text();
    return;
  }
  if (flags.ranks > 1) start_events(flags);  // once: the ranks write to the same stdout
  const auto launch = launched(flags, options);
  watch_interrupts();
  if (launch.rank > 0) {
    events::leave_off();
    return cluster::run_worker(launch, options, request_of(flags), interrupt_requested);
  }
  check_not_kept("--out", folder_of(flags));
  const NewFolders folders(folder_of(flags));
  start_events(flags);
  train_and_conclude(flags, launch, options);
}

}  // namespace

void add_train_command(CLI::App& program) {
  auto flags = std::make_shared<TrainFlags>();
  auto* command = program.add_subcommand("train", "a federated fine-tuning run: rounds, evaluation, report");
  command->footer(
      "Example: evenkeel train configs/demo.toml --set method.name=fedit --out runs/demo-fedit\n\n"
      "Runs federated fine-tuning as CONFIG says and leaves config, records, checkpoint, adapter and report in a run "
      "folder.");
  command->add_option("CONFIG", flags->config, "TOML file")->required();
  command->add_option("--set", flags->settings, "a.b=value, changes one key; as often as needed");
  flags->method.add_choice_to(*command);
  command->add_option("--out", flags->out, "run folder, new or empty (default: runs/<name>)");
  command->add_flag("--resume", flags->resume,
                    "resume from the last committed round in the run folder; with --set train.rounds=N, to N rounds in "
                    "all");
  add_from_round_flag(*command, flags->from_round);
  add_base_flag(*command, flags->base, "--resume");
  command->add_option("--threads", flags->threads, "processor threads (default: all cores)");
  command->add_option("--ranks", flags->ranks, "processes on this machine that share the clients (docs/federation.md)");
  add_device_flag(*command, flags->device);
  add_progress_flag(*command, flags->progress);
  command->add_flag("--print-config", flags->print_config, "print every key with its value and meaning, and stop");
  command->callback([flags] { run_train(*flags); });
}

}  // namespace evenkeel::apps
