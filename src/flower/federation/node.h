/// \file  Runs a client as a program. It joins a SuperLink of Flower or a server of evenkeel, answers envelopes until
/// it is stopped, and signs off when its last reply was fetched.
#pragma once

#include "flower/federation/node_client.h"
#include "flower/node/node_link.h"

namespace evenkeel::flower {

/// The options of run_node().
struct NodeProgram {
  NodeOptions link;
  NodeClientOptions client;
  bool once = false;  ///< true: leave when the first run in which the node took part is over
};

/// Runs the node until link.stop returns true or, with `once`, its run is over.
/// \throws kConfig when the server does not accept the node; Interrupted in the middle of a task; with `once`, also the
/// error for which the node refuses the offered run or cannot store the final adapter
void run_node(const NodeProgram& program);

}  // namespace evenkeel::flower
