#include "study/running/forecast.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "base/format/command_line.h"
#include "base/plain/number_text.h"
#include "base/system/device.h"
#include "base/system/machine.h"
#include "fed/round/progress.h"
#include "fed/run/computed_speed.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/product_speed.h"
#include "fed/run/run_forecast.h"
#include "report/text_lines.h"

namespace evenkeel::study {
namespace {

constexpr double kMemoryMargin = 1.25;  // a job is killed above its limit
constexpr int64_t kMebibyte = int64_t{1} << 20;

/// Work and files of one run.
struct RunNeeds {
  fed::RunWork work;
  fed::DiskNeeds disk;
  int64_t memory = 0;  // bytes
};

/// Computes the needs of a run by arm. Runs of an arm differ only in their seeds and need about the same.
std::map<std::string, RunNeeds> needs_by_arm(const StudyTask& task, const std::vector<size_t>& left,
                                             DryRuns& dry_runs) {
  std::map<std::string, RunNeeds> needs;
  for (const size_t run : left) {
    const auto& arm = task.study.state.runs[run].arm;
    if (needs.contains(arm)) continue;
    auto e = std::move(dry_runs.make(run).experiment);
    needs[arm] = {fed::counted_work(e), fed::disk_needs(e), fed::memory_plan(e).needed()};
  }
  return needs;
}

size_t reference_run(const StudyTask& task) {
  const auto& runs = task.study.state.runs;
  const auto is_reference = [&](const StudyRun& run) { return run.arm == task.study.state.reference; };
  return static_cast<size_t>(std::find_if(runs.begin(), runs.end(), is_reference) - runs.begin());
}

/// Speeds of this machine on the model of a study.
struct Speeds {
  fed::RunSpeeds speeds;
  bool by_flops = false;  // computed, not measured
  std::string basis;
};

/// Returns nothing if the runs are on a GPU and this machine has none.
std::optional<Speeds> speeds_of(const StudyTask& task, size_t run, const fed::RunFlops& flops) {
  const auto& config = task.study.runs[run].config;
  if (names_gpu(config->model.device) && gpu_count() == 0) return std::nullopt;
  if (!fed::is_too_large_to_measure(models::find_model_folder(config->model.path)))
    return Speeds{fed::foresee_run(config_of_run(task, run)).speeds, false,
                  concat("measured with arm ", task.study.state.reference)};
  const double product = fed::product_speed(*config);
  return Speeds{fed::computed_speeds(flops, product), true, basis_of_flops(product)};
}

std::vector<size_t> left_runs(const StudyTask& task) {
  auto left = task.mine;
  std::erase_if(left, [&](size_t run) { return task.study.state.runs[run].state == RunState::kDone; });
  return left;
}

/// Adds the time of the runs, `task.slots.count()` of them at once: the mean over the slots, and at least the time of
/// the longest run.
void add_time(const StudyTask& task, const std::vector<size_t>& left, const std::map<std::string, RunNeeds>& needs,
              const std::optional<Speeds>& speeds, Forecast& forecast) {
  if (!speeds) {
    forecast.seconds.reset();
    return;
  }
  double sum = 0, longest = 0;
  for (const size_t run : left) {
    const double seconds = fed::foreseen_seconds(needs.at(task.study.state.runs[run].arm).work, speeds->speeds);
    sum += seconds;
    longest = std::max(longest, seconds);
  }
  forecast.seconds = std::max(longest, sum / static_cast<double>(task.slots.count()));
  forecast.by_flops = speeds->by_flops;
  forecast.basis = speeds->basis;
}

std::string time_line(const StudyCommand& command, const Forecast& forecast) {
  if (!forecast.seconds) return "not computed: there is no GPU here";
  return concat(forecast.by_flops ? "" : "about ", time_text(*forecast.seconds), " with --jobs ", command.jobs, ", ",
                forecast.basis);
}

}  // namespace

std::string basis_of_flops(double product_speed) {
  return concat("by FLOPs, at ", compact(product_speed), "FLOP/s of a large product here");
}

std::string time_text(double seconds) {
  constexpr double kDay = 24 * 3600;
  return seconds > 2 * kDay ? concat(std::llround(seconds / kDay), " days") : fed::readable_duration(seconds);
}

Forecast foresee(const StudyTask& task, DryRuns& dry_runs) {
  const auto left = left_runs(task);
  Forecast forecast{.runs = static_cast<int64_t>(left.size())};
  const auto& config = task.study.runs.front().config;
  forecast.threads = config->threads * config->clients.parallel;
  if (left.empty()) return forecast;
  const auto needs = needs_by_arm(task, left, dry_runs);
  const size_t reference = reference_run(task);
  const auto flops = fed::run_flops(dry_runs.make(reference).experiment);
  int64_t passing = 0;
  for (const size_t run : left) {
    const auto& of_arm = needs.at(task.study.state.runs[run].arm);
    forecast.flops += fed::foreseen_flops(of_arm.work, flops);
    forecast.memory = std::max(forecast.memory, of_arm.memory);
    forecast.disk += of_arm.disk.kept;
    passing = std::max(passing, of_arm.disk.passing);
  }
  forecast.disk += passing * std::min(task.slots.count(), forecast.runs);
  add_time(task, left, needs, speeds_of(task, reference, flops), forecast);
  return forecast;
}

std::string array_command(const StudyCommand& command, const StudyTask& task, const Forecast& forecast, int64_t tasks) {
  auto words = resume_words({.file = command.file,
                             .jobs = command.jobs,
                             .only = command.only,
                             .base = command.base,
                             .methods = command.methods},
                            task.study.folder);
  for (const auto& setting : command.settings) words.insert(words.end(), {"--set", setting});
  const auto wrapped = concat(command_line(words), " --shard $SLURM_ARRAY_TASK_ID/", tasks);
  const int64_t at_once = task.slots.count();
  const double memory = kMemoryMargin * static_cast<double>(forecast.memory * at_once);
  const bool on_gpu = names_gpu(task.study.runs.front().config->model.device);
  return concat("sbatch --array=1-", tasks, " --ntasks=1 --cpus-per-task=", forecast.threads * at_once,
                on_gpu ? concat(" --gpus=", at_once) : "", " --mem=", static_cast<int64_t>(memory) / kMebibyte + 1,
                "M --wrap=", shell_word(wrapped));
}

std::string forecast_text(const StudyCommand& command, const StudyTask& task, const Forecast& forecast) {
  const auto& state = task.study.state;
  std::ostringstream text;
  text << "study   " << state.name << ": " << state.arms.size() << " arms x " << state.seeds.size() << " seeds, "
       << state.runs.size() << " runs, " << forecast.runs << " to make by this command\n";
  if (forecast.runs == 0) return text.str();
  const auto bytes = [](int64_t count) { return machine::bytes_text(count); };
  const int64_t tasks = command.shard.count > 1 ? command.shard.count : forecast.runs;
  const int64_t at_once = forecast.memory * std::min(task.slots.count(), forecast.runs);
  const int64_t available = machine::memory().available;
  text << "time    " << time_line(command, forecast) << '\n';
  if (const auto notice = task.slots.notice(); !notice.empty()) text << "device  " << notice << '\n';
  text << "work    " << compact(forecast.flops) << "FLOP to train and to score\n"
       << "memory  " << bytes(forecast.memory) << " a run, " << bytes(at_once) << " at once; available "
       << bytes(available) << (at_once > available ? ": does not fit" : "") << '\n'
       << "disk    about " << bytes(forecast.disk) << " in " << task.study.folder.string() << "; free "
       << bytes(machine::free_disk(task.study.folder)) << '\n'
       << "array   " << array_command(command, task, forecast, tasks) << '\n';
  return text.str();
}

}  // namespace evenkeel::study
