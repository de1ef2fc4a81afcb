/// \file  Declares the state that a server keeps about the nodes of its run. FleetFabric owns it, Sessions change it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fed/store/audit.h"
#include "flower/federation/agreement.h"
#include "flower/federation/envelope.h"
#include "flower/federation/grid.h"
#include "flower/federation/roster.h"

namespace evenkeel::flower {

/// The server's requirements for clients, and its time limits.
struct FleetTerms {
  double deadline_s = 0;  ///< seconds per exchange, after which clients are lost if `quorum` have replied; 0: none
  int64_t quorum = 1;     ///< replies needed before the deadline has an effect
  int64_t clients = 1;    ///< clients of the run; where fewer are asked for a score, the quorum shrinks in proportion
  /// Seconds to wait for an offline node: in exchanges without a deadline, and for scores.
  double patience_s = 300;
  int64_t most_examples = int64_t{1} << 40;  ///< largest number of training rows that a node may report
  int64_t most_upload = int64_t{16} << 30;   ///< largest reply, bytes of its payload
};

/// What a node becomes in a run (place_of()).
struct Place {
  std::optional<int64_t> client{};  ///< the client; nothing: none
  std::string how{};                ///< Member::assigned
  std::string refusal{};            ///< why the node becomes no client; empty: it may become one later
  std::string warning{};            ///< for the log, when the node becomes the client; empty: none
};

/// Functions and settings with which a run gets its clients.
struct Joining {
  /// Makes the offer for a client: the run's config and what the server will send (flower/federation/agreement.h).
  std::function<Offer(int64_t client)> offer;
  /// Returns the client for a new node, other than the clients in `taken`.
  std::function<Place(const NodeInfo& node, std::span<const NodeInfo> nodes, const std::set<int64_t>& taken)> place_of;
  /// Throws kConfig for a budget with which a client uses no expert of the model and, while the run is under way, for a
  /// budget other than the client's in the run's config.
  std::function<void(int64_t client, double budget)> check_budget{};
  std::function<void(const Member& member)> on_join{};                     ///< called when a node has become a client
  int64_t clients = 0;                                                     ///< number of clients of the run
  fed::OnChange on_change = fed::OnChange::kRefuse;                        ///< clients.on_change
  std::function<const methods::ClientProfile&(int64_t client)> profile{};  ///< empty before the run begins
  std::function<void(int64_t members)> tick;  ///< called every second while clients join; may throw Interrupted
  /// Tasks on the clients' own test rows, by name. All clients with test rows score them, and the scores are merged.
  std::map<std::string, scoring::AnswerKind> client_tasks{};
  bool wants_items = false;  ///< evaluate.items of the run
  int64_t test_limit = 0;    ///< test rows per task, of each client; 0: all
};

/// A client that was lost in this round because its node was too late.
struct LateClient {
  double lost_at = 0;  ///< when it was lost, seconds since 1970
  bool slow = false;   ///< true: it missed a score's deadline; false: its training's deadline, or its node was offline
};

/// The nodes of a run. Threads: one.
struct Fleet {
  Grid& grid;                    ///< borrowed
  Roster& roster;                ///< borrowed
  std::filesystem::path folder;  ///< for arriving payloads; they are deleted when the process ends
  FleetTerms terms{};
  Joining joining{};
  std::set<int64_t> agreed{};     ///< clients whose node has accepted since the server and the node started
  std::set<int64_t> informed{};   ///< clients that have the shared state up to the last round that was announced
  bool has_shared_state = false;  ///< true: the run has a shared state, which a client needs before its first task
  std::map<int64_t, LateClient> late{};  ///< by client; emptied when the training of a round begins
  std::optional<int64_t> rounds{};       ///< rounds that are committed; nothing: the run has not begun
  std::function<void()> attend{};        ///< called several times a second during exchanges: nodes join and keys change
  /// Called with the result of a message that does not belong to the exchange under way.
  std::function<void(const Arrival& arrival)> on_other{};
  /// Called with the end of each task: an event of kind kReply or kLost.
  std::function<void(const fed::AuditEvent& event)> on_report{};
  fed::AuditLog* audit = nullptr;  ///< borrowed; null: no event is recorded
  /// By client: SHA-256 of the payloads of scoring tasks that its node keeps, as far as the server knows.
  std::map<int64_t, std::vector<std::string>> kept{};
  std::map<int64_t, WorkOutcome> untold{};  ///< by client: outcome of its last work, until its node is told

  void record(const fed::AuditEvent& event) const {
    if (audit) audit->add(event);
  }
  std::string audit_head() const { return audit ? audit->head() : ""; }

  /// Makes the offer for a client, with the number of committed rounds.
  Offer offer(int64_t client) const {
    auto offer = joining.offer(client);
    offer.round = rounds.value_or(0);
    return offer;
  }
};

}  // namespace evenkeel::flower
