/// \file  A client that stays while Flower starts a process per message: ClientApps bring it envelopes over a socket
/// and carry its answers away (docs/flower-app.md, The node).
#pragma once

#include "flower/federation/node_client.h"
#include "flower/format/lines.h"

namespace evenkeel {

/// Answers one ClientApp after another until `stop` says so.
void run_resident_node(const std::filesystem::path& socket, const NodeClientOptions& options,
                       const wire::StopWaiting& stop);

}  // namespace evenkeel
