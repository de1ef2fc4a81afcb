#include "fed/run/federation_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <utility>

#include "fed/config/client_rows.h"
#include "fed/config/sampling.h"
#include "fed/run/computed_speed.h"
#include "fed/run/make_experiment.h"
#include "fed/run/memory_estimate.h"

namespace evenkeel::fed {
namespace {

int64_t longest_row(const Experiment& e) {
  const int64_t cutoff = e.server.config->data.cutoff, positions = e.server.model.max_positions;
  return cutoff > 0 ? std::min(cutoff, positions) : positions;
}

/// Gives each client one row of the greatest length. Estimates repeat rows, so that batches are of the longest rows.
void take_longest_rows(Experiment& e, int64_t length) {
  auto& shards = e.fabric.shards;
  shards.examples.assign(e.server.clients.size(), {});
  for (auto& rows : shards.examples) rows.emplace_back().ids.assign(static_cast<size_t>(length), 0);
}

ClientTraffic traffic_of(const Experiment& e, const methods::ClientProfile& client) {
  const int64_t factors = factor_bytes(e.server, client.rank);
  return {.budget = client.budget,
          .rank = client.rank,
          .top_k = client.top_k,
          .down = factors + merged_bytes_of_round(e),
          .up = factors};
}

/// Returns the bytes of the `count` clients that have the most.
int64_t largest(const std::vector<ClientTraffic>& clients, int64_t ClientTraffic::*bytes, int64_t count) {
  std::vector<int64_t> all;
  for (const auto& client : clients) all.push_back(client.*bytes);
  return sum_of_largest(std::move(all), count);
}

}  // namespace

int64_t factor_bytes(const Server& server, int64_t rank) {
  lora::AdapterState adapters;
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  for (const auto& [name, site] : server.sites) {
    const int64_t stack = std::max<int64_t>(site.experts, 1);
    adapters[name] = {.a = at::empty({stack, rank, site.in}, meta), .b = at::empty({stack, site.out, rank}, meta)};
  }
  return lora::payload_size({.adapters = std::move(adapters)}, server.config->train.transport_dtype);
}

FederationPlan plan_federation(const RunConfig& config) {
  check_nodes(config->secure_aggregation);
  check_rows_of_nodes(*config);
  auto e = make_experiment(config, Purpose::kServe);
  e.server.clients_with_test_rows = std::set<int64_t>{};
  FederationPlan plan;
  plan.longest_row = longest_row(e);
  take_longest_rows(e, plan.longest_row);
  plan.server = server_memory_plan(e);
  e.use(config.with([](ExperimentConfig& values) { values.clients.parallel = 1; }));  // a node is one client
  plan.node = memory_plan(e);
  plan.disk = disk_needs(e);
  plan.node_disk = adapter_bytes(e.server, e.server.max_rank());
  for (const auto& client : e.server.clients) plan.clients.push_back(traffic_of(e, client));
  plan.participants = drawn_clients(static_cast<int64_t>(plan.clients.size()), config->clients.participation);
  plan.down = largest(plan.clients, &ClientTraffic::down, plan.participants);
  plan.up = largest(plan.clients, &ClientTraffic::up, plan.participants);
  plan.scored_rows = counted_work(e).scored_rows;
  return plan;
}

}  // namespace evenkeel::fed
