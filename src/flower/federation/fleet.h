/// \file  Declares the state that a server keeps about the nodes of its run. FleetFabric owns it, Sessions change it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
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
  int64_t test_limit = 0;  ///< test rows per task, over all clients; 0: all
  uint64_t seed = 42;      ///< seed for drawing `test_limit` rows
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
  bool has_shared_state = false;  ///< true: the run has a shared state, which a client needs before its first task
  /// Called with the end of each task: an event of kind kReply or kLost.
  std::function<void(const fed::AuditEvent& event)> on_report{};
  fed::AuditLog* audit = nullptr;  ///< borrowed; null: no event is recorded
  /// By client: SHA-256 of the payloads of scoring tasks that its node keeps, as far as the server knows.
  std::map<int64_t, std::vector<std::string>> kept{};
  std::map<int64_t, WorkOutcome> untold{};  ///< by client: what its node has not been told of its last work

  void record(const fed::AuditEvent& event) const {
    if (audit) audit->add(event);
  }
  std::string audit_head() const { return audit ? audit->head() : ""; }
};

}  // namespace evenkeel::flower
