#include "cluster/cluster_fabric.h"

#include <ATen/ATen.h>

#include <set>
#include <sstream>

#include "base/plain/log.h"
#include "base/plain/sealed.h"
#include "cluster/assignment.h"
#include "cluster/reply_exchange.h"
#include "fed/store/state_file.h"

namespace evenkeel::cluster {
namespace {

/// Returns the parts of a state that other ranks need: those that broadcasts are made from, and the server's memory.
/// They already have the shared state.
methods::ServerState shared_part(const methods::ServerState& state) {
  return {.round = state.round, .global = state.global, .memory = state.memory, .common = {}};
}

}  // namespace

void GroupReduction::max(std::span<int64_t> values) const {
  member_.together("a maximum", [&](Collective& group) { group.max(values); });
}

void GroupReduction::sum(std::span<int64_t> values) const {
  member_.together("a sum", [&](Collective& group) { group.sum(values); });
}

ClusterFabric::ClusterFabric(ProcessGroup& member, fed::Experiment& experiment, std::filesystem::path log)
    : member_(member),
      server_(experiment.server),
      local_(experiment.fabric),
      log_(std::move(log)),
      commands_(member),
      reduction_(member) {}

void ClusterFabric::announce(std::span<const methods::ClientProfile> clients, const fed::StateUpdate& news) {
  local_.announce(clients, news);
  if (alone()) return;
  const auto bytes = fed::to_bytes(news);
  commands_.give({.order = Order::kNews, .round = news.round, .bytes = bytes.numel()});
  commands_.share(bytes, concat("news of round ", news.round));
}

void ClusterFabric::exchange(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange) {
  if (alone() || clients.empty()) return local_.exchange(clients, exchange);
  if (exchange.training) return train(clients, exchange);
  const auto first = exchange.task_of(clients[0]);
  const auto* ask = std::get_if<fed::SumGradients>(&first.ask);
  if (ask && first.client.id != fed::kPooledData) return sum_gradients(clients, exchange, *ask);
  auto known = exchange;
  known.task_of = [&](const methods::ClientProfile& client) {
    return client.id == first.client.id ? first : exchange.task_of(client);
  };
  local_.exchange(clients, known);
}

std::vector<std::vector<int64_t>> ClusterFabric::assign(std::span<const methods::ClientProfile> clients) const {
  std::vector<double> costs;
  for (const auto& client : clients)
    costs.push_back(cost_of(client, local_.shards.examples.at(static_cast<size_t>(client.id))));
  std::vector<std::vector<int64_t>> shares;
  for (const auto& share : assign_by_cost(costs, group_size())) {
    auto& ids = shares.emplace_back();
    for (const size_t i : share) ids.push_back(clients[i].id);
  }
  return shares;
}

void ClusterFabric::log_assignment(const Command& command) const {
  append_sealed(log_, {{"round", command.round + 1},
                       {"group", member_.group_number()},
                       {"ranks", member_.members()},
                       {"clients", command.shares}});
}

void ClusterFabric::train(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange) {
  const auto& state = exchange.training->state;
  fed::ClientMemories memories;
  for (const auto& client : clients)
    if (const auto known = local_.memories.find(client.id); known != local_.memories.end()) memories.insert(*known);
  const auto bytes = fed::encode_state(shared_part(state)), memory_bytes = fed::encode_memories(memories);
  const Command command{.order = Order::kTrain,
                        .round = state.round,
                        .exchange = exchanges_++,
                        .shares = assign(clients),
                        .participants = ids_of(exchange.training->round.participants),
                        .bytes = bytes.numel(),
                        .memory_bytes = memory_bytes.numel()};
  log_assignment(command);
  commands_.give(command);
  commands_.share(bytes, concat("the state of round ", state.round + 1));
  commands_.share(memory_bytes, concat("what clients keep, round ", state.round + 1));
  work_here(command, exchange);
  collect(command, exchange);
}

void ClusterFabric::sum_gradients(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange,
                                  const fed::SumGradients& ask) {
  const Command command{.order = Order::kGradients, .exchange = exchanges_++, .shares = assign(clients), .ask = ask};
  commands_.give(command);
  work_here(command, exchange);
  collect(command, exchange);
}

void ClusterFabric::work_here(const Command& command, const fed::Exchange& exchange) {
  auto own = exchange;
  own.on_progress = [&](const fed::ClientProgress& progress) {
    if (exchange.on_progress) exchange.on_progress(progress);
    show_others(command, exchange);
    member_.check();
  };
  local_.exchange(server_.profiles(command.shares[0]), own);
}

/// Collects the replies of each rank when it is done. One rank sends at a time.
void ClusterFabric::collect(const Command& command, const fed::Exchange& exchange) {
  std::set<int> awaited;
  for (int group_rank = 1; group_rank < group_size(); ++group_rank)
    if (!command.shares[static_cast<size_t>(group_rank)].empty()) awaited.insert(group_rank);
  for (; !awaited.empty(); ProcessGroup::pause()) {
    member_.check();
    show_others(command, exchange);
    for (auto group_rank = awaited.begin(); group_rank != awaited.end();) {
      if (!member_.read(ready_key(command.exchange, *group_rank))) {
        ++group_rank;
        continue;
      }
      collect_from(*group_rank, command, exchange);
      group_rank = awaited.erase(group_rank);
    }
  }
}

void ClusterFabric::collect_from(int group_rank, const Command& command, const fed::Exchange& exchange) {
  member_.post(grant_key(command.exchange, group_rank), "");
  const ReplyHeader expected{
      .layout = layout_of(server_.sites), .round = command.round, .group = member_.group_number()};
  for ([[maybe_unused]] const int64_t client : command.shares[static_cast<size_t>(group_rank)]) {
    fed::Reply reply;
    member_.together(
        concat("replies of rank ", member_.members()[static_cast<size_t>(group_rank)], ", round ", command.round + 1),
        [&](Collective& group) { reply = receive_reply(group, group_rank, expected); });
    exchange.on_reply(std::move(reply));
  }
}

/// Reports the progress of the other ranks, at most twice a second.
void ClusterFabric::show_others(const Command& command, const fed::Exchange& exchange) {
  const auto now = std::chrono::steady_clock::now();
  if (!exchange.on_progress || now - shown_ < std::chrono::milliseconds(500)) return;
  shown_ = now;
  for (int group_rank = 1; group_rank < group_size(); ++group_rank) {
    const auto text = member_.read(progress_key(command.exchange, group_rank));
    if (!text) continue;
    fed::ClientProgress progress;
    std::istringstream(*text) >> progress.client >> progress.steps >> progress.tokens;
    exchange.on_progress(progress);
  }
}

const lora::Reduction& ClusterFabric::sums(const methods::RoundView& round) {
  commands_.give({.order = Order::kSum, .round = round.round, .participants = ids_of(round.participants)});
  return reduction_;
}

bool ClusterFabric::recover() {
  if (!member_.options().regroup || !member_.broken()) return false;
  member_.regroup();
  commands_.begin_again();
  return true;
}

void ClusterFabric::end() {
  member_.disable_guard();
  if (alone()) return;
  try {
    commands_.give({.order = Order::kEnd});
    for (int group_rank = 1; group_rank < group_size(); ++group_rank) member_.wait_for(concat("bye/", group_rank));
  } catch (const Error& error) {
    log::warning("[cluster] the run is complete, but some ranks could not be told to end: ", error.what());
  }
}

}  // namespace evenkeel::cluster
