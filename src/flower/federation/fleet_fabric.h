/// \file  Clients that are nodes of a Flower federation, each on a machine of its own: envelopes go to them, replies
/// come back when they come or not at all, and what a node sends is believed no further than it can be checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>

#include "fed/exchange/fabric.h"
#include "flower/federation/envelope.h"
#include "flower/federation/fleet.h"

namespace evenkeel {

class FleetFabric : public Fabric {
 public:
  /// Grid and roster are borrowed. \param folder  for what arrives; nothing in it outlives the process
  FleetFabric(Grid& grid, Roster& roster, std::filesystem::path folder)
      : fleet_{.grid = grid, .roster = roster, .folder = std::move(folder)} {}

  /// Must be called before anything else, and whenever the run that is offered changes.
  /// \param evaluator  answers for kEvaluator, borrowed; null: nobody does
  void serve(Joining joining, const FleetTerms& terms, Fabric* evaluator);

  /// Makes offers until so many clients have a node that accepted.
  void gather(int64_t clients);

  void announce(std::span<const ClientProfile> clients, const StateUpdate& news) override;
  void exchange(std::span<const ClientProfile> clients, const Exchange& exchange) override;

  /// Sends every node the run's final adapter. A node that is online is waited for; one that is away is named in a
  /// warning, after a few seconds. \param adapter  encoded, as whole_adapter() gives it
  void hand_out(const EncodedPayload& adapter);
  /// Tells all nodes that the run is over; those that are away for longer than a few seconds are not told.
  void part();

  /// \param on_report  called with the outcome of each exchange
  void report_to(std::function<void(const SessionReport& report)> on_report) {
    fleet_.on_report = std::move(on_report);
  }

 private:
  void score(const Task& task, const Exchange& exchange);
  void score_by_clients(const Task& task, const Exchange& exchange);
  /// \throws kData for a score that `asked` cannot have; of replies to other tasks nothing is known here.
  void check_answer(const Task& asked, const Reply& reply) const;
  /// What each client that has test rows is asked of `task`, by client.
  std::map<int64_t, Task> shares_of(const Task& task) const;

  Fleet fleet_;
  Fabric* evaluator_ = nullptr;
};

}  // namespace evenkeel
