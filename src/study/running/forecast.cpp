#include "study/running/forecast.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "base/format/command_line.h"
#include "base/system/machine.h"
#include "fed/round/progress.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/run_forecast.h"
#include "study/running/speeds.h"

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

/// Returns the sites with one input and one output each.
lora::Sites smallest(lora::Sites sites) {
  for (auto& [name, site] : sites) site.in = site.out = 1;
  return sites;
}

/// Counts the work of a run. The points of an evaluation depend on how the method routes, and that on its state, which
/// is made for sites of the smallest size here.
fed::RunWork work_of(fed::Experiment& e) {
  auto& server = e.server;
  auto sites = std::exchange(server.sites, smallest(server.sites));
  const auto ones = [&](const std::string& site, const methods::GradientSample&) {
    const int64_t experts = server.sites.at(site).experts;
    return experts > 0 ? at::ones({experts, 1, 1}) : at::ones({1, 1});
  };
  auto work = fed::work_of(e, server.method->initialize(server.view(0, ones)));
  server.sites = std::move(sites);
  return work;
}

/// Computes the needs of a run by arm. Runs of an arm differ only in their seeds and need about the same.
std::map<std::string, RunNeeds> needs_by_arm(const StudyTask& task, const std::vector<size_t>& left,
                                             DryRuns& dry_runs) {
  std::map<std::string, RunNeeds> needs;
  for (const size_t run : left) {
    const auto& arm = task.study.state.runs[run].arm;
    if (needs.contains(arm)) continue;
    auto e = std::move(dry_runs.make(run).experiment);
    needs[arm] = {work_of(e), fed::disk_needs(e), fed::memory_plan(e).needed()};
  }
  return needs;
}

size_t reference_run(const StudyTask& task) {
  const auto& runs = task.study.state.runs;
  const auto is_reference = [&](const StudyRun& run) { return run.arm == task.study.state.reference; };
  return static_cast<size_t>(std::find_if(runs.begin(), runs.end(), is_reference) - runs.begin());
}

Speeds speeds_of(const StudyTask& task, DryRuns& dry_runs) {
  const size_t run = reference_run(task);
  if (!is_large(models::resolve_model_path(task.study.runs[run].config.model.path)))
    return measured_speeds(config_of_run(task, run), task.study.state.reference);
  return computed_speeds(dry_runs.make(run).experiment);
}

/// Formats a time. Times of more than two days are given in days.
std::string time_text(double seconds) {
  constexpr double kDay = 24 * 3600;
  return seconds > 2 * kDay ? concat(std::llround(seconds / kDay), " days") : fed::readable_duration(seconds);
}

std::vector<size_t> left_runs(const StudyTask& task) {
  auto left = task.mine;
  std::erase_if(left, [&](size_t run) { return task.study.state.runs[run].state == RunState::kDone; });
  return left;
}

}  // namespace

Forecast foresee(const StudyCommand& command, const StudyTask& task, DryRuns& dry_runs) {
  const auto left = left_runs(task);
  Forecast forecast{.runs = static_cast<int64_t>(left.size())};
  const auto& config = task.study.runs.front().config;
  forecast.threads = config.threads * config.clients.parallel;
  if (left.empty()) return forecast;
  const auto needs = needs_by_arm(task, left, dry_runs);
  const auto [speeds, are_upper_bounds, basis] = speeds_of(task, dry_runs);
  forecast.is_least = are_upper_bounds;
  forecast.basis = basis;
  int64_t passing = 0;
  double longest = 0;
  for (const size_t run : left) {
    const auto& of_arm = needs.at(task.study.state.runs[run].arm);
    const double seconds = fed::foreseen_seconds(of_arm.work, speeds);
    forecast.seconds += seconds / static_cast<double>(command.jobs);
    longest = std::max(longest, seconds);
    forecast.memory = std::max(forecast.memory, of_arm.memory);
    forecast.disk += of_arm.disk.kept;
    passing = std::max(passing, of_arm.disk.passing);
  }
  forecast.seconds = std::max(longest, forecast.seconds);
  forecast.disk += passing * std::min(command.jobs, forecast.runs);
  return forecast;
}

std::string array_command(const StudyCommand& command, const StudyTask& task, const Forecast& forecast, int64_t tasks) {
  auto words = resume_words({.file = command.file, .jobs = command.jobs, .only = command.only}, task.study.folder);
  for (const auto& setting : command.settings) words.insert(words.end(), {"--set", setting});
  const auto wrapped = concat(command_line(words), " --shard $SLURM_ARRAY_TASK_ID/", tasks);
  const double memory = kMemoryMargin * static_cast<double>(forecast.memory * command.jobs);
  return concat("sbatch --array=1-", tasks, " --ntasks=1 --cpus-per-task=", forecast.threads * command.jobs,
                " --mem=", static_cast<int64_t>(memory) / kMebibyte + 1, "M --wrap=", shell_word(wrapped));
}

std::string forecast_text(const StudyCommand& command, const StudyTask& task, const Forecast& forecast) {
  const auto& state = task.study.state;
  std::ostringstream text;
  text << "study   " << state.name << ": " << state.arms.size() << " arms x " << state.seeds.size() << " seeds, "
       << state.runs.size() << " runs, " << forecast.runs << " to make by this command\n";
  if (forecast.runs == 0) return text.str();
  const auto bytes = [](int64_t count) { return machine::bytes_text(count); };
  const int64_t tasks = command.shard.count > 1 ? command.shard.count : forecast.runs;
  const int64_t at_once = forecast.memory * std::min(command.jobs, forecast.runs);
  const int64_t available = machine::memory().available;
  text << "time    " << (forecast.is_least ? "at least " : "about ") << time_text(forecast.seconds) << " with --jobs "
       << command.jobs << ", " << forecast.basis << '\n'
       << "memory  " << bytes(forecast.memory) << " a run, " << bytes(at_once) << " at once; available "
       << bytes(available) << (at_once > available ? ": does not fit" : "") << '\n'
       << "disk    about " << bytes(forecast.disk) << " in " << task.study.folder.string() << "; free "
       << bytes(machine::free_disk(task.study.folder)) << '\n'
       << "array   " << array_command(command, task, forecast, tasks) << '\n';
  return text.str();
}

}  // namespace evenkeel::study
