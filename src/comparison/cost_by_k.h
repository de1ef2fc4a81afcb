/// \file  Compares what training costs with K experts per token: counted FLOPs, and the seconds that clients measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"
#include "comparison/statistics.h"

namespace evenkeel::comparison {

/// The cost of training on 1,000 tokens with K experts per token, over all clients of one arm that have this K. Their
/// budgets may differ.
struct CostOfK {
  std::string arm;
  int64_t top_k = 0;                     ///< K; 0: a dense model
  int64_t runs = 0;                      ///< number of runs with such clients
  int64_t seconds_runs = 0;              ///< number of these runs whose records have seconds
  std::optional<double> flops, seconds;  ///< means over `runs` and `seconds_runs`; empty without any
  std::optional<Interval> interval;      ///< of `seconds`, 95 %, by t over runs
  /// The cost divided by the cost at the largest K that any client of the compared arms has. Means over the runs that
  /// have clients with both values of K.
  std::optional<double> flops_share, seconds_share;
};

/// Returns the K of the clients of a study, ascending.
std::vector<int64_t> client_top_ks(const StudyRuns& study);
/// Returns the K of the clients and of the evaluations of a study, ascending.
std::vector<int64_t> all_top_ks(const StudyRuns& study);

/// Returns one entry per arm and K, arm by arm. If an arm has no client with that K, `runs` is 0.
std::vector<CostOfK> costs_by_k(const StudyRuns& study, std::span<const std::string> arms,
                                std::span<const int64_t> top_ks);

}  // namespace evenkeel::comparison
