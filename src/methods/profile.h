/// \file  Defines the data that the server has about a client.
#pragma once

#include <cstdint>
#include <limits>

namespace evenkeel::methods {

/// Describes a client.
struct ClientProfile {
  int64_t id = 0;
  double budget = 1.0;  ///< beta_c in (0, 1]
  int64_t top_k = 0;    ///< K_c; 0 on a dense model
  int64_t rank = 0;     ///< r_c
  double examples = 0;  ///< |D_c|, the client's number of training rows
  bool trains = true;   ///< false: an evaluation client
  /// The client may be drawn in rounds first_round <= round < end_round. Round 0 is the first. Not part of messages.
  int64_t first_round = 0, end_round = std::numeric_limits<int64_t>::max();

  bool may_be_drawn(int64_t round) const { return first_round <= round && round < end_round; }
  /// Returns true if the client's own scores count in an evaluation after `rounds` rounds.
  bool is_scored_after(int64_t rounds) const { return first_round <= rounds && rounds <= end_round; }
  void visit(auto& field) {  // base/format/record.h
    field("id", id, -2);     // kEvaluator and kPooledData are negative (fed/exchange/message.h)
    field("budget", budget);
    field("top_k", top_k);
    field("rank", rank);
    field("examples", examples);
    field("trains", trains);
  }
};

}  // namespace evenkeel::methods
