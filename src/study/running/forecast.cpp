#include "study/running/forecast.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/format/command_line.h"
#include "base/system/machine.h"
#include "fed/round/progress.h"
#include "fed/round/round.h"
#include "fed/run/make_experiment.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/run_forecast.h"

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

fed::ExperimentConfig config_of(const StudyTask& task, size_t run) {
  auto config = task.study.runs[run].config;
  config.output.dir = (task.study.folder / task.study.state.runs[run].folder).string();
  return config;
}

/// Computes the needs of a run by arm. Runs of an arm differ only in their seeds and need about the same.
std::map<std::string, RunNeeds> needs_by_arm(const StudyTask& task, const std::vector<size_t>& left) {
  std::map<std::string, RunNeeds> needs;
  for (const size_t run : left) {
    const auto& arm = task.study.state.runs[run].arm;
    if (needs.contains(arm)) continue;
    auto e = fed::make_experiment(config_of(task, run), fed::Purpose::kTrain);
    needs[arm] = {fed::work_of(e, fed::before_first_round(e.server, e.fabric).state), fed::disk_needs(e),
                  fed::memory_plan(e).needed()};
  }
  return needs;
}

size_t reference_run(const StudyTask& task) {
  const auto& runs = task.study.state.runs;
  const auto is_reference = [&](const StudyRun& run) { return run.arm == task.study.state.reference; };
  return static_cast<size_t>(std::find_if(runs.begin(), runs.end(), is_reference) - runs.begin());
}

std::vector<size_t> left_runs(const StudyTask& task) {
  auto left = task.mine;
  std::erase_if(left, [&](size_t run) { return task.study.state.runs[run].state == RunState::kDone; });
  return left;
}

}  // namespace

Forecast foresee(const StudyCommand& command, const StudyTask& task) {
  const auto left = left_runs(task);
  Forecast forecast{.runs = static_cast<int64_t>(left.size())};
  const auto& config = task.study.runs.front().config;
  forecast.threads = config.threads * config.clients.parallel;
  if (left.empty()) return forecast;
  const auto needs = needs_by_arm(task, left);
  const auto speeds = fed::foresee_run(config_of(task, reference_run(task))).speeds;
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
  text << "time    about " << fed::readable_duration(forecast.seconds) << " with --jobs " << command.jobs
       << ", measured with arm " << state.reference << '\n'
       << "memory  " << bytes(forecast.memory) << " a run, "
       << bytes(forecast.memory * std::min(command.jobs, forecast.runs)) << " at once; available "
       << bytes(machine::memory().available) << '\n'
       << "disk    about " << bytes(forecast.disk) << " in " << task.study.folder.string() << "; free "
       << bytes(machine::free_disk(task.study.folder)) << '\n'
       << "array   " << array_command(command, task, forecast, tasks) << '\n';
  return text.str();
}

}  // namespace evenkeel::study
