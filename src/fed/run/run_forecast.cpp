#include "fed/run/run_forecast.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/plain/clock.h"
#include "data/example.h"
#include "data/tasks.h"
#include "fed/config/sampling.h"
#include "fed/round/round.h"
#include "fed/round/starting_adapter.h"
#include "fed/run/machine_speed.h"
#include "fed/run/make_experiment.h"
#include "fed/run/memory_estimate.h"
#include "fed/run/state_evaluation.h"

namespace evenkeel::fed {
namespace {

constexpr double kProcessSeconds = 1;     // to start a process with LibTorch, and to end it
constexpr double kMeasuredSeconds = 0.5;  // of training per K
constexpr int64_t kMeasuredRows = 4;      // at most, of each task, scored at every point
constexpr int64_t kCountedRounds = 1000;  // whose participants are drawn; more rounds are as these

double tokens_of(const Experiment& e, const methods::ClientProfile& client) {
  const auto& rows = e.fabric.shards.examples.at(static_cast<size_t>(client.id));
  const int64_t trained = train::rows_of_round(e.server.config->train, static_cast<int64_t>(rows.size()));
  return static_cast<double>(data::tokens_in(rows)) / static_cast<double>(std::max<size_t>(1, rows.size())) *
         static_cast<double>(trained);
}

std::map<int64_t, double> trained_tokens(const Experiment& e) {
  const auto& config = e.server.config;
  std::map<int64_t, double> of_client, of_k;
  for (const auto& client : e.server.clients) of_client[client.id] = tokens_of(e, client);
  const int64_t counted = std::min(config->train.rounds, kCountedRounds);
  const double share = static_cast<double>(config->train.rounds) / static_cast<double>(counted);
  for (int64_t round = 0; round < counted; ++round)
    for (const auto& client : e.server.drawn(round).participants) of_k[client.top_k] += share * of_client.at(client.id);
  return of_k;
}

double test_row_count(const RunConfig& config) {
  double rows = 0;
  for (const auto& [task, count] : test_row_counts(config)) rows += count;
  return rows;
}

double evaluations(const RunConfig& config) {
  const auto& [rounds, every] = std::tie(config->train.rounds, config->evaluate.every);
  const int64_t between = every > 0 ? rounds / every : 0;
  const bool last_apart = every == 0 || rounds % every != 0;
  return static_cast<double>((config->evaluate.before ? 1 : 0) + between + (last_apart ? 1 : 0));
}

/// Returns the bytes of the uploads of the largest round. Every participant sends at most its whole adapter.
int64_t upload_bytes(const Experiment& e) {
  std::vector<int64_t> all;
  for (const auto& client : e.server.clients) all.push_back(adapter_bytes(e.server, client.rank));
  const auto drawn = drawn_clients(std::ssize(all), e.server.config->clients.participation);
  return sum_of_largest(std::move(all), drawn);
}

/// Returns the limit with which a few rows of each task are scored, of each client's where they have their own: the
/// fewest that one of them has, so that none gets a warning about a limit that nobody set.
int64_t measured_rows(const RunConfig& config) {
  int64_t fewest = kMeasuredRows;
  const auto count = [&](const data::TaskInfo& task, const data::RowOptions& options) {
    fewest = std::min(fewest, std::ssize(data::test_rows(task, options).rows));
  };
  const auto options = config.rows_to_score(std::nullopt, config->evaluate.limit);
  for (const auto& name : config.tasks_here()) {
    const auto task = data::find_task(name, options);
    if (task.family != "files" || options.files.clients.empty()) count(task, options);
    if (task.family != "files") continue;
    auto own = options;
    for (const auto& client : options.files.clients) {
      own.files.clients = {client};
      if (client.tests()) count(task, own);
    }
  }
  return std::max<int64_t>(1, fewest);
}

double seconds_per_row(Experiment& e, const methods::ServerState& state) {
  const int64_t rows_of_each = measured_rows(e.server.config);
  e.use(e.server.config.with([&](ExperimentConfig& values) { values.evaluate.limit = rows_of_each; }));
  const auto begin = std::chrono::steady_clock::now();
  double rows = 0;
  for (const auto& score : evaluate_state(e.server, e.fabric, state)) rows += static_cast<double>(score.rows);
  return rows > 0 ? seconds_since(begin) / rows : 0;
}

RunSpeeds speeds_of(Experiment& e, const methods::ServerState& state, double seconds_to_start) {
  RunSpeeds speeds{.tokens_per_second = {}, .seconds_to_start = seconds_to_start};
  const auto top_ks = measured_top_ks(e);
  const auto profile = measured_profile(e, top_ks, kMeasuredSeconds);
  for (size_t i = 0; i < top_ks.size(); ++i) speeds.tokens_per_second[top_ks[i]] = profile.tokens_per_second[i];
  speeds.seconds_per_row = seconds_per_row(e, state);
  return speeds;
}

}  // namespace

DiskNeeds disk_needs(const Experiment& e) {
  const int64_t adapter = adapter_bytes(e.server, e.server.max_rank());
  const int64_t copies = e.server.config->evaluate.keep_best ? 6 : 3;  // of the best: its adapter and two states
  return {.kept = copies * adapter, .passing = adapter + 2 * upload_bytes(e)};
}

std::map<std::string, double> test_row_counts(const RunConfig& config) {
  std::map<std::string, double> counts;
  const auto options = config.rows_to_score(std::nullopt, config->evaluate.limit);
  for (const auto& task : config.tasks_here())
    counts[task] = static_cast<double>(data::test_rows(data::find_task(task, options), options).rows.size());
  return counts;
}

RunWork work_of(const Experiment& e, const methods::ServerState& state) {
  const auto& config = e.server.config;
  const auto points = evaluation_points(e.server, state).size() + client_points(e.server, 0).size();
  return {.tokens = trained_tokens(e),
          .scored_rows = test_row_count(config) * static_cast<double>(points) * evaluations(config)};
}

RunForecast foresee_run(const RunConfig& config) {
  const auto begin = std::chrono::steady_clock::now();
  auto e = make_experiment(config, Purpose::kTrain, check_evaluation);
  const double seconds_to_start = seconds_since(begin);
  const auto state = before_first_round(e.server, e.fabric).state;
  return {work_of(e, state), speeds_of(e, state, seconds_to_start)};
}

std::optional<double> measured_scoring_seconds(const RunConfig& config, double scored_rows) {
  if (config->method.entry().asks_gradients) return std::nullopt;
  const auto begin = std::chrono::steady_clock::now();
  auto e = make_experiment(config, Purpose::kEvaluate, check_evaluation);
  e.server.clients_with_test_rows = std::set<int64_t>{};
  const auto state = first_state(e.server);
  const double seconds_to_start = seconds_since(begin);
  return seconds_to_start + scored_rows * seconds_per_row(e, state);
}

double at_top_k(const std::map<int64_t, double>& values, int64_t top_k) {
  const auto found = values.lower_bound(top_k);
  return found == values.end() ? values.rbegin()->second : found->second;
}

double foreseen_seconds(const RunWork& work, const RunSpeeds& speeds) {
  double seconds = kProcessSeconds + speeds.seconds_to_start + work.scored_rows * speeds.seconds_per_row;
  for (const auto& [top_k, tokens] : work.tokens) seconds += tokens / at_top_k(speeds.tokens_per_second, top_k);
  return seconds;
}

}  // namespace evenkeel::fed
