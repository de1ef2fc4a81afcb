#include "study/running/forecast.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "base/format/command_line.h"
#include "base/system/machine.h"
#include "data/tasks.h"
#include "fed/config/sampling.h"
#include "fed/round/progress.h"
#include "fed/round/round.h"
#include "fed/run/machine_speed.h"
#include "fed/run/make_experiment.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/state_evaluation.h"
#include "models/cost.h"

namespace evenkeel::study {
namespace {

constexpr double kProcessSeconds = 1;     // to start a process with LibTorch, and to end it
constexpr double kMeasuredSeconds = 0.5;  // of training per K
constexpr int64_t kMeasuredRows = 4;      // of each task, scored at every point
constexpr double kMemoryMargin = 1.25;    // a job is killed above its limit
constexpr int64_t kMebibyte = int64_t{1} << 20;

/// Work and files of one run.
struct RunNeeds {
  std::map<int64_t, double> tokens;           // training tokens, by K
  double scored_rows = 0;                     // rows x points x evaluations
  int64_t memory = 0, kept = 0, passing = 0;  // bytes
};

/// Measured speeds of this machine.
struct Speeds {
  std::map<int64_t, double> tokens_per_second;  // by K
  double seconds_per_row = 0, seconds_to_start = 0;
};

double tokens_of(const fed::Experiment& e, const methods::ClientProfile& client) {
  const auto& rows = e.fabric.shards.examples.at(static_cast<size_t>(client.id));
  double tokens = 0;
  for (const auto& row : rows) tokens += static_cast<double>(row.ids.size());
  const auto& train = e.server.config.train;
  const auto steps = train::local_steps(train, static_cast<int64_t>(rows.size()));
  const double trained = static_cast<double>(steps * train.batch_size * train.accumulation);
  return tokens / static_cast<double>(std::max<size_t>(1, rows.size())) * trained;
}

std::map<int64_t, double> trained_tokens(const fed::Experiment& e) {
  const auto& config = e.server.config;
  std::map<int64_t, double> of_client, of_k;
  for (const auto& client : e.server.clients) of_client[client.id] = tokens_of(e, client);
  for (int64_t round = 0; round < config.train.rounds; ++round)
    for (const auto& client :
         fed::draw_round(e.server.clients, config.clients.participation, e.server.seed(), round).participants)
      of_k[client.top_k] += of_client.at(client.id);
  return of_k;
}

double test_row_count(const fed::ExperimentConfig& config) {
  double rows = 0;
  const auto options = config.rows_to_score(std::nullopt, config.evaluate.limit);
  for (const auto& task : config.tasks_here())
    rows += static_cast<double>(data::test_rows(data::find_task(task, options), options).rows.size());
  return rows;
}

double evaluations(const fed::ExperimentConfig& config) {
  double count = 0;
  for (int64_t round = 0; round <= config.train.rounds; ++round) count += config.evaluates_after(round) ? 1 : 0;
  return count;
}

/// Returns the bytes of the uploads of the largest round. Every participant sends at most its whole adapter.
int64_t upload_bytes(const fed::Experiment& e) {
  std::vector<int64_t> all;
  for (const auto& client : e.server.clients) all.push_back(4 * models::lora_parameters(e.server.sites, client.rank));
  std::sort(all.rbegin(), all.rend());
  const auto drawn = fed::drawn_clients(static_cast<int64_t>(all.size()), e.server.config.clients.participation);
  return std::accumulate(all.begin(), all.begin() + drawn, int64_t{0});
}

RunNeeds needs_of(const fed::Experiment& e, const methods::ServerState& state) {
  const auto& config = e.server.config;
  const int64_t adapter = 4 * models::lora_parameters(e.server.sites, e.server.max_rank());
  const auto points = fed::evaluation_points(e.server, state).size() + fed::client_points(e.server).size();
  return {.tokens = trained_tokens(e),
          .scored_rows = test_row_count(config) * static_cast<double>(points) * evaluations(config),
          .memory = fed::memory_plan(e).needed(),
          .kept = 3 * adapter,
          .passing = adapter + 2 * upload_bytes(e)};
}

double seconds_between(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

fed::ExperimentConfig config_of(const StudyTask& task, size_t run) {
  auto config = task.study.runs[run].config;
  config.output.dir = (task.study.folder / task.study.state.runs[run].folder).string();
  return config;
}

double seconds_per_row(fed::Experiment& e, const methods::ServerState& state) {
  e.server.config.evaluate.limit = e.fabric.context.config.evaluate.limit = kMeasuredRows;
  const auto begin = std::chrono::steady_clock::now();
  double rows = 0;
  for (const auto& score : fed::evaluate_state(e.server, e.fabric, state)) rows += static_cast<double>(score.rows);
  return rows > 0 ? seconds_between(begin) / rows : 0;
}

Speeds measured_speeds(const StudyTask& task, size_t run) {
  const auto begin = std::chrono::steady_clock::now();
  auto e = fed::make_experiment(config_of(task, run), fed::Purpose::kTrain, fed::check_evaluation);
  Speeds speeds{.tokens_per_second = {}, .seconds_to_start = seconds_between(begin)};
  const auto top_ks = fed::measured_top_ks(e);
  const auto profile = fed::measured_profile(e, top_ks, kMeasuredSeconds);
  for (size_t i = 0; i < top_ks.size(); ++i) speeds.tokens_per_second[top_ks[i]] = profile.tokens_per_second[i];
  speeds.seconds_per_row = seconds_per_row(e, fed::before_first_round(e.server, e.fabric).state);
  return speeds;
}

/// Returns the speed with K experts per token: the measured one, or that of the next larger K.
double speed_at(const Speeds& speeds, int64_t top_k) {
  const auto found = speeds.tokens_per_second.lower_bound(top_k);
  return found == speeds.tokens_per_second.end() ? speeds.tokens_per_second.rbegin()->second : found->second;
}

double seconds_of(const RunNeeds& needs, const Speeds& speeds) {
  double seconds = kProcessSeconds + speeds.seconds_to_start + needs.scored_rows * speeds.seconds_per_row;
  for (const auto& [top_k, tokens] : needs.tokens) seconds += tokens / speed_at(speeds, top_k);
  return seconds;
}

/// Computes the needs of a run by arm. Runs of an arm differ only in their seeds and need about the same.
std::map<std::string, RunNeeds> needs_by_arm(const StudyTask& task, const std::vector<size_t>& left) {
  std::map<std::string, RunNeeds> needs;
  for (const size_t run : left) {
    const auto& arm = task.study.state.runs[run].arm;
    if (needs.contains(arm)) continue;
    auto e = fed::make_experiment(config_of(task, run), fed::Purpose::kTrain);
    needs[arm] = needs_of(e, fed::before_first_round(e.server, e.fabric).state);
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
  const auto speeds = measured_speeds(task, reference_run(task));
  int64_t passing = 0;
  double longest = 0;
  for (const size_t run : left) {
    const auto& of_arm = needs.at(task.study.state.runs[run].arm);
    const double seconds = seconds_of(of_arm, speeds);
    forecast.seconds += seconds / static_cast<double>(command.jobs);
    longest = std::max(longest, seconds);
    forecast.memory = std::max(forecast.memory, of_arm.memory);
    forecast.disk += of_arm.kept;
    passing = std::max(passing, of_arm.passing);
  }
  forecast.seconds = std::max(longest, forecast.seconds);
  forecast.disk += passing * std::min(command.jobs, forecast.runs);
  return forecast;
}

std::string array_command(const StudyCommand& command, const StudyTask& task, const Forecast& forecast, int64_t tasks) {
  auto words = resume_words({.file = command.file, .jobs = command.jobs}, task.study.folder);
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
