#include "fed/run/machine_speed.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "fed/round/round.h"

namespace evenkeel::fed {
namespace {

const std::vector<data::Example>& largest_shard(const Shards& shards) {
  return *std::max_element(shards.examples.begin(), shards.examples.end(),
                           [](const auto& x, const auto& y) { return x.size() < y.size(); });
}

/// Runs `steps` optimiser steps of `client` and returns their report.
train::LocalReport trained(Experiment& e, const methods::ServerState& state, const methods::ClientProfile& client,
                           int64_t steps) {
  const auto& rows = largest_shard(e.fabric.shards);
  auto& config = e.fabric.context.config;
  const auto before = config;
  config = before.with([&](ExperimentConfig& values) {
    auto& train = values.train;
    train.local_epochs = static_cast<double>(steps * train.rows_of_step()) / static_cast<double>(rows.size());
    values.secure_aggregation = {};  // a report then has tokens and seconds
    if (values.privacy.protects_clients()) values.privacy = {};
  });
  auto round = e.server.draw(state);
  auto task = e.server.training_task(state, client, round);
  std::get<Train>(task.ask).summed.reset();
  const auto reply = Client(e.fabric.context, rows).answer(task);
  config = before;
  return report_of<train::LocalReport>(reply);
}

/// Rounds to three significant digits; more are not reproducible.
double rounded(double speed) {
  const double unit = std::pow(10.0, std::floor(std::log10(speed)) - 2);
  return std::round(speed / unit) * unit;
}

/// Measures with rounds of a client's full length, so that their start-up time counts, or shorter ones if those are
/// slow.
double tokens_per_second(Experiment& e, const methods::ServerState& state, const methods::ClientProfile& client,
                         double seconds) {
  const double step = trained(e, state, client, 1).seconds;
  const auto rows = static_cast<int64_t>(largest_shard(e.fabric.shards).size());
  const int64_t steps = std::clamp(std::llround(seconds / step), 1LL,
                                   static_cast<long long>(train::local_steps(e.server.config->train, rows)));
  train::LocalReport all;
  while (all.seconds < seconds) {
    const auto round = trained(e, state, client, steps);
    all.tokens += round.tokens;
    all.seconds += round.seconds;
  }
  return rounded(static_cast<double>(all.tokens) / all.seconds);
}

}  // namespace

std::vector<int64_t> measured_top_ks(const Experiment& e) {
  const int64_t most = e.server.model.top_k;
  if (e.server.model.num_experts == 0) return {0};
  std::set<int64_t> all;
  for (const int64_t divisor : {8, 4, 2, 1}) all.insert(std::max<int64_t>(1, most / divisor));
  for (const auto& client : e.server.clients) all.insert(client.top_k);
  return {all.begin(), all.end()};
}

MachineProfile measured_profile(Experiment& e, std::span<const int64_t> top_ks, double seconds) {
  const auto state = before_first_round(e.server, e.fabric).state;
  MachineProfile profile;
  for (const int64_t k : top_ks) {
    auto client = e.server.clients[0];
    client.top_k = k;
    client.rank = e.server.max_rank();
    if (k > 0) profile.top_k.push_back(k);
    profile.tokens_per_second.push_back(tokens_per_second(e, state, client, seconds));
  }
  return profile;
}

}  // namespace evenkeel::fed
