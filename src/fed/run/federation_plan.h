/// \file  Plans a federation whose rows are at its nodes, on a machine that has none of them. What depends on the rows
/// is an upper bound: a row has data.cutoff tokens at most.
#pragma once

#include <cstdint>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/round/server.h"
#include "fed/run/run_forecast.h"
#include "models/memory_plan.h"

namespace evenkeel::fed {

/// What a client receives and sends in a round in which it takes part, in bytes, at most.
struct ClientTraffic {
  double budget = 1;
  int64_t rank = 0, top_k = 0;
  int64_t down = 0, up = 0;
};

/// The needs of a federation.
struct FederationPlan {
  models::MemoryPlan server{};           ///< `evenkeel serve`, with the base for its scores
  models::MemoryPlan node{};             ///< the largest client, with rows of the longest that data.cutoff allows
  int64_t longest_row = 0;               ///< that length, in tokens
  DiskNeeds disk{};                      ///< of the server's run folder
  int64_t node_disk = 0;                 ///< of a node: the final adapter
  std::vector<ClientTraffic> clients{};  ///< [client]
  int64_t participants = 0;              ///< clients of a round
  int64_t down = 0, up = 0;              ///< bytes of the server in a round, at most; the largest clients take part
  double scored_rows = 0;                ///< rows that the server scores itself: rows x points x evaluations
};

/// Returns the bytes of A and B of all sites at a rank, as they travel: the largest amount of factors that a method
/// sends.
int64_t factor_bytes(const Server& server, int64_t rank);

/// Plans a federation without reading training rows, files of test rows at clients, or weights.
/// \param config  without_rows() \throws as make_experiment()
FederationPlan plan_federation(const RunConfig& config);

}  // namespace evenkeel::fed
