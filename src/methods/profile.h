/// \file  A client as the server knows it.
#pragma once

#include <cstdint>

namespace evenkeel {

struct ClientProfile {
  int64_t id = 0;
  double budget = 1.0;  ///< beta_c in (0, 1]
  int64_t top_k = 0;    ///< K_c; 0 on a dense model
  int64_t rank = 0;     ///< r_c
  double examples = 0;  ///< |D_c|
  bool trains = true;   ///< false: an evaluation, "a client that never trains"

  void visit(auto& field) {  // base/format/record.h
    field("id", id, -2);     // clients that never train have negative ones (fed/exchange/fabric.h)
    field("budget", budget);
    field("top_k", top_k);
    field("rank", rank);
    field("examples", examples);
    field("trains", trains);
  }
};

}  // namespace evenkeel
