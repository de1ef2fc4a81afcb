/// \file  Runs a client as a resident process, while Flower starts a ClientApp process per message. ClientApps bring
/// envelopes over a Unix socket and take the answers back (docs/json-lines.md, "The node").
#pragma once

#include "flower/federation/node_client.h"
#include "flower/format/lines.h"

namespace evenkeel::flower {

/// Listens at `socket` and answers one ClientApp after another until `stop` returns true. Holds the lock of the node's
/// folder meanwhile, as NodeLink does. \throws InUse (base/plain/file_lock.h) when another process holds it
void run_resident_node(const std::filesystem::path& socket, const NodeClientOptions& options, const StopWaiting& stop);

}  // namespace evenkeel::flower
