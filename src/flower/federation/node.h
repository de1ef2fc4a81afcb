/// \file  A client of a federation as a program: joins a SuperLink of Flower's or a server of ours, answers its
/// envelopes until it is told to stop, and leaves when its last reply was fetched.
#pragma once

#include "flower/federation/node_client.h"
#include "flower/node/node_link.h"

namespace evenkeel {

struct NodeProgram {
  wire::NodeOptions link;
  NodeClientOptions client;
  bool once = false;  ///< leaves when the first run that it took part in is over
};

/// Returns when it was stopped (link.stop) or, with `once`, its run is over.
/// \throws kConfig for a server that does not let it in; with `once`, also whatever keeps it from the run that it is
/// offered.
void run_node(const NodeProgram& program);

}  // namespace evenkeel
