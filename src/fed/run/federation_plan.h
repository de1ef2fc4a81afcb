/// \file  Plans a federation whose rows are at its nodes, on a machine that has none of the rows. Values that depend on
/// rows are upper bounds: a row has at most data.cutoff tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/round/server.h"
#include "fed/run/run_forecast.h"
#include "models/memory_plan.h"

namespace evenkeel::fed {

/// The most bytes that a client receives (down) and sends (up) in a round in which it takes part.
struct ClientTraffic {
  double budget = 1;
  int64_t rank = 0, top_k = 0;
  int64_t down = 0, up = 0;
};

/// The needs of a federation.
struct FederationPlan {
  models::MemoryPlan server{};           ///< memory of `evenkeel serve`, with the base for its scores
  models::MemoryPlan node{};             ///< memory of the largest client, with rows of length longest_row
  int64_t longest_row = 0;               ///< the longest row that data.cutoff and the model allow, in tokens
  DiskNeeds disk{};                      ///< disk space of the server's run folder
  int64_t node_disk = 0;                 ///< disk space of a node in bytes: the final adapter
  std::vector<ClientTraffic> clients{};  ///< [client]
  int64_t participants = 0;              ///< number of clients in a round
  int64_t down = 0, up = 0;              ///< bytes of the server in a round, at most; the largest clients take part
  double scored_rows = 0;                ///< rows that the server scores itself: rows x points x evaluations
};

/// Returns the bytes of A and B of all sites at a rank in the transport dtype. No method sends more factors.
int64_t factor_bytes(const Server& server, int64_t rank);

/// Plans a federation without reading training rows, files of test rows at clients, or weights.
/// \param config  made of a result of without_rows() \throws as make_experiment()
FederationPlan plan_federation(const RunConfig& config);

}  // namespace evenkeel::fed
