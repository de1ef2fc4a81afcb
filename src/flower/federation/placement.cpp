#include "flower/federation/placement.h"

#include <algorithm>

#include "base/plain/log.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

/// The arguments of place_of().
struct Question {
  const NodeInfo& node;
  std::span<const NodeInfo> nodes;
  const fed::ClientsSection& clients;
  const Roster& roster;
  const std::set<int64_t>& taken;

  /// Returns the place of a client that is the node's by key or by name.
  Place own(int64_t client, std::string how) const {
    if (!taken.contains(client)) return {.client = client, .how = std::move(how)};
    const auto member = roster.members().find(client);
    if (member == roster.members().end()) return {};  // it is offered to another node
    return {.refusal = concat(clients.who(client), " has joined with the key ", member->second.key,
                              ": to hand it to this key, write replaces=", member->second.key, " after ",
                              shown(node.name), " in this key's line of the list of keys, and remove the other line")};
  }

  /// Returns the client whose key is the node's or, if there is none, the one that the node's key replaces.
  std::optional<int64_t> by_key() const {
    for (const auto& own : {node.fingerprint, node.replaces})
      for (int64_t id = 0; id < clients.count && !own.empty(); ++id)
        if (clients.key(id) == own) return id;
    return std::nullopt;
  }

  std::optional<int64_t> by_name() const {
    for (int64_t id = 0; id < clients.count; ++id)
      if (clients.name(id) == node.name) return id;
    return std::nullopt;
  }

  bool is_name_of_a_node(const std::string& name) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](const NodeInfo& one) { return one.name == name; });
  }

  /// Returns the first free client with neither key nor name or, with `named`, one without key whose name no node has.
  std::optional<int64_t> free(bool named) const {
    for (int64_t id = 0; id < clients.count; ++id) {
      const auto name = clients.name(id);
      if (taken.contains(id) || !clients.key(id).empty() || name.has_value() != named) continue;
      if (!named || !is_name_of_a_node(*name)) return id;
    }
    return std::nullopt;
  }

  bool identifies_clients() const {
    return std::any_of(clients.client.begin(), clients.client.end(),
                       [](const fed::ClientSection& client) { return !client.key.empty() || !client.name.empty(); });
  }

  std::string what_to_write() const {
    const auto name = concat("name = \"", shown(node.name), "\"");
    if (node.fingerprint.empty())
      return concat("no client of the config has ", name, ", and the grid tells no key of the node: register the node ",
                    "under the client's name, or let clients be dealt out by clients.assign = \"arrival\"");
    return concat("no client of the config has key = \"", node.fingerprint, "\" or ", name,
                  ": write this key into the [[clients.client]] that the node is, or the client's name at the end of ",
                  "the node's line in the list of keys");
  }
};

}  // namespace

Place place_of(const NodeInfo& node, std::span<const NodeInfo> nodes, const fed::ClientsSection& clients,
               const Roster& roster, const std::set<int64_t>& taken) {
  const Question question{node, nodes, clients, roster, taken};
  if (const auto id = question.by_key()) return question.own(*id, "key");
  if (const auto id = question.by_name()) {
    if (const auto key = clients.key(*id); !key.empty())
      return {.refusal = concat("its name is that of ", clients.who(*id), ", whose key is ", key,
                                "; this node's key is ", node.fingerprint.empty() ? "not known" : node.fingerprint)};
    return question.own(*id, "name");
  }
  if (const auto id = question.free(false)) return {.client = id, .how = "arrival"};
  if (const auto id = clients.assign == fed::Placement::kArrival ? question.free(true) : std::nullopt)
    return {
        .client = id,
        .how = "arrival",
        .warning = concat(shown(node.name), " becomes ", clients.who(*id),
                          " because it is the next to come (clients.assign = \"arrival\"): nothing says that it is")};
  if (!question.identifies_clients()) return {};
  return {.refusal = question.what_to_write()};
}

void warn_of_absent(Grid& grid, const fed::ClientsSection& clients) {
  const auto nodes = grid.nodes();
  for (int64_t id = 0; id < clients.count; ++id) {
    const auto key = clients.key(id);
    const auto name = clients.name(id);
    const auto fits = [&](const NodeInfo& node) {
      return key.empty() ? node.name == name : node.fingerprint == key || node.replaces == key;
    };
    const bool is_free = key.empty() && (!name || clients.assign == fed::Placement::kArrival);
    if (is_free || std::any_of(nodes.begin(), nodes.end(), fits)) continue;
    log::warning("[serve] no node can be ", clients.who(id), ": the list of keys has no ",
                 key.empty() ? concat("line that ends in ", *name) : concat("key ", key));
  }
}

}  // namespace evenkeel::flower
