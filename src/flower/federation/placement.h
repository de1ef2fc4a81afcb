/// \file  Decides which client of a run a node is. A node is identified by its public key. The config names a client's
/// key ([[clients.client]] key), or the server's list of keys names the node as the config names the client.
#pragma once

#include <set>
#include <span>

#include "fed/config/experiment_config.h"
#include "flower/federation/fleet.h"

namespace evenkeel::flower {

/// Returns the client for a node that has none yet:
///   1. the client whose `key` is the node's key or the key that it replaces;
///   2. otherwise the client without `key` that has the node's name;
///   3. otherwise the first free client with neither key nor name;
///   4. otherwise, with clients.assign = "arrival", the first free client without `key` whose name no node has;
///   5. otherwise none. Place::refusal says why if the config identifies clients, because the operator has to act.
/// \param nodes   all nodes of the grid
/// \param roster  the clients that have a node
/// \param taken   the clients that have a node or are offered to one
Place place_of(const NodeInfo& node, std::span<const NodeInfo> nodes, const fed::ClientsSection& clients,
               const Roster& roster, const std::set<int64_t>& taken);

/// Warns of clients that no node of the grid can become: clients with a key that is not in the list of keys and, unless
/// clients.assign is "arrival", clients with only a name that no line of the list has. REQUIRES Grid::lists_all().
void warn_of_absent(Grid& grid, const fed::ClientsSection& clients);

}  // namespace evenkeel::flower
