/// \file  Declares the state that a server keeps about the nodes of its run. FleetFabric owns it, Sessions change it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "flower/federation/agreement.h"
#include "flower/federation/grid.h"
#include "flower/federation/roster.h"

namespace evenkeel::flower {

/// The server's requirements for clients, and its time limits.
struct FleetTerms {
  double deadline_s = 0;  ///< seconds per exchange, after which clients are lost if `quorum` have replied; 0: none
  int64_t quorum = 1;     ///< replies needed before the deadline has an effect
  /// Seconds to wait for an offline node: in exchanges without a deadline, and in evaluations.
  double patience_s = 300;
  int64_t most_examples = int64_t{1} << 40;  ///< largest number of training rows that a node may report
  int64_t most_upload = int64_t{16} << 30;   ///< largest reply, bytes of its payload
};

/// Functions and settings with which a run gets its clients.
struct Joining {
  /// Makes the offer for a client: the run's config and what the server will send (flower/federation/agreement.h).
  std::function<Offer(int64_t client)> offer;
  /// Returns the client that a new node becomes, not one of `taken`; nothing if the node gets no client.
  std::function<std::optional<int64_t>(const NodeInfo& node, const std::set<int64_t>& taken)> client_of;
  /// Throws kConfig for a budget with which a client uses no expert of the model.
  std::function<void(double budget)> check_budget{};
  std::function<void(int64_t members)> tick;  ///< called every second while clients join; may throw Interrupted
  /// Tasks on the clients' own test rows, by name. All clients with test rows score them, and the scores are merged.
  std::map<std::string, scoring::AnswerKind> client_tasks{};
  bool wants_items = false;  ///< evaluate.items of the run
  int64_t test_limit = 0;    ///< test rows per task, of each client; 0: all
};

/// The outcome of one exchange with one client, for status output and metrics.
struct SessionReport {
  int64_t round = 0, client = 0;
  std::string node;
  std::string outcome;                   ///< "reply", or the reason why there is none
  double seconds = 0;                    ///< seconds from sending the last message to the result
  int64_t bytes_down = 0, bytes_up = 0;  ///< bytes of the payloads
  double moved = 0;                      ///< distance that the adapter moved (fed/round/payload_check.h)
  double client_s = 0;                   ///< seconds from the node's fetching the task to its announcing a reply

  void visit(auto& field) {  // base/format/record.h
    field("round", round);
    field("client", client, -2);
    field("node", node);
    field("outcome", outcome);
    field("seconds", seconds);
    field("bytes_down", bytes_down);
    field("bytes_up", bytes_up);
    field("moved", moved);
    field("client_s", client_s);
  }
};

/// The nodes of a run. Threads: one.
struct Fleet {
  Grid& grid;                    ///< borrowed
  Roster& roster;                ///< borrowed
  std::filesystem::path folder;  ///< for arriving payloads; they are deleted when the process ends
  FleetTerms terms{};
  Joining joining{};
  std::set<int64_t> agreed{};     ///< clients whose node has accepted since the server and the node started
  std::set<int64_t> informed{};   ///< clients that have the shared state
  int64_t rounds = 0;             ///< committed rounds
  bool has_shared_state = false;  ///< true: the run has a shared state, which a client needs before its first task
  std::function<void(const SessionReport& report)> on_report{};

  /// Makes the offer for a client, with the number of committed rounds.
  Offer offer(int64_t client) const {
    auto offer = joining.offer(client);
    offer.round = rounds;
    return offer;
  }
};

}  // namespace evenkeel::flower
