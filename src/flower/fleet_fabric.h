/// \file  Clients that are nodes of a Flower federation, each on a machine of its own: letters go to them, replies come
/// back when they come or not at all, and what a node sends is believed no further than it can be checked.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "fed/fabric.h"
#include "fed/server.h"
#include "flower/agreement.h"
#include "flower/grid.h"
#include "flower/letter.h"
#include "flower/roster.h"

namespace evenkeel {

/// What a server asks of a round's clients, and bears of them.
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

/// What came of one exchange with one client, for people and metrics.
struct TalkReport {
  int64_t round = 0, client = 0;
  std::string node;
  std::string outcome;                   ///< "reply", or why there is none
  double seconds = 0;                    ///< from its task to its reply
  int64_t bytes_down = 0, bytes_up = 0;  ///< of payloads
  double moved = 0;                      ///< how far its adapter did (fed/payload_check.h)
  double client_s = 0;                   ///< between the node's taking the task and announcing the reply

  void visit(auto& field) {  // base/record.h
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

class FleetFabric : public Fabric {
 public:
  /// Grid and roster are borrowed. \param folder  for what arrives; nothing in it outlives the process
  FleetFabric(Grid& grid, Roster& roster, std::filesystem::path folder)
      : grid_(grid), roster_(roster), folder_(std::move(folder)) {}

  /// Must be called before anything else, and whenever the run that is offered changes.
  /// \param evaluator  answers for kEvaluator, borrowed; null: nobody does
  void serve(Joining joining, const FleetTerms& terms, Fabric* evaluator);

  /// Makes offers until so many clients have a node that accepted.
  void gather(int64_t clients);

  void announce(std::span<const ClientProfile> clients, const News& news) override;
  void exchange(std::span<const ClientProfile> clients, const Exchange& exchange) override;

  /// Sends every node the run's final adapter. A node that is online is waited for; one that is away is named in a
  /// warning, after a few seconds. \param adapter  encoded, as whole_adapter() gives it
  void hand_out(const EncodedPayload& adapter);
  /// Tells all nodes that the run is over; those that are away for longer than a few seconds hear nothing.
  void part();

  std::function<void(const TalkReport& report)> on_report{};

 private:
  friend class Talks;

  void score(const Task& task, const Exchange& exchange);
  void score_by_clients(const Task& task, const Exchange& exchange);
  /// \throws kData for a score that `asked` cannot have; of replies to other tasks nothing is known here.
  void check_answer(const Task& asked, const Reply& reply) const;
  /// What each client that has test rows is asked of `task`, by client.
  std::map<int64_t, Task> shares_of(const Task& task) const;

  Grid& grid_;
  Roster& roster_;
  FleetTerms terms_{};
  std::filesystem::path folder_;
  Joining joining_;
  Fabric* evaluator_ = nullptr;
  std::set<int64_t> agreed_;    // clients whose node has accepted in this life of the server, and of its own
  std::set<int64_t> informed_;  // those that know what all hold alike
  bool common_ = false;         // whether there is anything of the kind
};

}  // namespace evenkeel
