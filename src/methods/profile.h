/// \file  Defines the data that the server has about a client.
#pragma once

#include <cstdint>

namespace evenkeel::methods {

/// Describes a client.
struct ClientProfile {
  int64_t id = 0;
  double budget = 1.0;  ///< beta_c in (0, 1]
  int64_t top_k = 0;    ///< K_c; 0 on a dense model
  int64_t rank = 0;     ///< r_c
  double examples = 0;  ///< |D_c|, its number of training rows
  bool trains = true;   ///< false: an evaluation client

  void visit(auto& field) {  // base/format/record.h
    field("id", id, -2);     // evaluation clients have negative ids (fed/exchange/fabric.h)
    field("budget", budget);
    field("top_k", top_k);
    field("rank", rank);
    field("examples", examples);
    field("trains", trains);
  }
};

}  // namespace evenkeel::methods
