/// \file  What a server knows of the nodes of its run: who they are, what it requires of them, and which of them know
/// the run and its shared state. FleetFabric owns it; Sessions change it.
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

namespace evenkeel {

/// What a server requires of the clients of a round, and how long it waits for them.
struct FleetTerms {
  double deadline_s = 0;    ///< of an exchange: who has not replied by then is lost, if `quorum` have; 0: none
  int64_t quorum = 1;       ///< replies without which nobody is given up for being late
  double patience_s = 300;  ///< for which a node that is offline is waited for, where there is no deadline
  int64_t most_examples = int64_t{1} << 40;  ///< |D_c| that a node may say it has when it joins
  int64_t most_upload = int64_t{16} << 30;   ///< bytes of a reply
};

/// How a run finds its clients.
struct Joining {
  std::function<Offer(int64_t client)> offer;
  /// Which client a new node would be, none of those that are taken; nothing: none.
  std::function<std::optional<int64_t>(const wire::NodeInfo& node, const std::set<int64_t>& taken)> client_of;
  std::function<void(int64_t members)> tick;  ///< asked every second; may throw Interrupted
  /// Tasks of rows that clients keep: each is scored by all clients that have test rows, and the scores are merged.
  std::map<std::string, AnswerKind> client_tasks{};
  int64_t test_limit = 0;  ///< of a task's rows, those of all clients together; 0: all
  uint64_t seed = 42;      ///< which rows a limit draws
};

/// The outcome of one exchange with one client, for status output and metrics.
struct SessionReport {
  int64_t round = 0, client = 0;
  std::string node;
  std::string outcome;                   ///< "reply", or why there is none
  double seconds = 0;                    ///< from its task to its reply
  int64_t bytes_down = 0, bytes_up = 0;  ///< of payloads
  double moved = 0;                      ///< how far its adapter did (fed/round/payload_check.h)
  double client_s = 0;                   ///< between the node's taking the task and announcing the reply

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

/// Threads: one uses it.
struct Fleet {
  Grid& grid;                    ///< borrowed
  Roster& roster;                ///< borrowed
  std::filesystem::path folder;  ///< for payloads that arrive; nothing in it outlives the process
  FleetTerms terms{};
  Joining joining{};
  std::set<int64_t> agreed{};    ///< clients whose node has accepted in this life of the server, and of its own
  std::set<int64_t> informed{};  ///< clients that know the shared state
  bool has_shared_state = false;
  std::function<void(const SessionReport& report)> on_report{};
};

}  // namespace evenkeel
