/// \file  Implements Fabric for clients that are nodes of a Flower federation. It sends envelopes to them, waits for
/// replies within the terms of the run, and validates everything that a node sends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>

#include "fed/exchange/fabric.h"
#include "flower/federation/envelope.h"
#include "flower/federation/fleet.h"
#include "flower/federation/gathering.h"
#include "flower/federation/masked_rounds.h"

namespace evenkeel::flower {

/// Exchanges messages with the nodes of a run. Threads: one.
class FleetFabric : public fed::Fabric {
 public:
  /// Grid and roster are borrowed. \param folder  holds arriving payloads; its files are deleted when the process ends.
  /// Its parent folder holds the journal of masked rounds
  FleetFabric(Grid& grid, Roster& roster, std::filesystem::path folder);
  FleetFabric(const FleetFabric&) = delete;
  FleetFabric& operator=(const FleetFabric&) = delete;

  /// Sets how clients join and the terms of the run. Call it first, and again when the offered run changes.
  /// \param evaluator  answers tasks for kEvaluator, borrowed; null: such tasks fail with kConfig
  void use_terms(Joining joining, const FleetTerms& terms, fed::Fabric* evaluator);

  /// Sends offers to new nodes and returns when `clients` clients have a node.
  void gather(int64_t clients);
  /// Reports that the rounds begin. Clients that join from now on may be drawn in the next round at the earliest.
  void begin_rounds();

  void announce(std::span<const methods::ClientProfile> clients, const fed::StateUpdate& news) override;
  void exchange(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange) override;

  /// Sends the run's final adapter to the nodes of all clients that have not left the run. Waits for nodes that are
  /// online. Nodes that stay offline for 10 s are named in a warning.
  /// \param adapter   encoded, from whole_adapter()
  /// \param recorded  by client: the last event of kind kAdapter. Nodes that have this adapter do not get it again, as
  /// the log says
  void hand_out(const lora::EncodedPayload& adapter, const std::map<int64_t, fed::AuditEvent>& recorded);
  /// Reports the end of the run to all nodes. Nodes that do not answer within 10 s are skipped. Then waits until all
  /// nodes are offline, at most 3 s.
  void end_run();

  /// \param on_report  called when a task ends, with an event of kind kReply or kLost
  void report_to(std::function<void(const fed::AuditEvent& event)> on_report) {
    fleet_.on_report = std::move(on_report);
  }

  /// Records events from now on. \param audit  borrowed
  void record_in(fed::AuditLog& audit) { fleet_.audit = &audit; }

  /// \param on_round  called with the number of committed rounds: once when the run begins or goes on, and after each
  /// commit
  void on_round(std::function<void(int64_t rounds)> on_round) { on_round_ = std::move(on_round); }
  /// Calls the function of on_round(). Sends nothing and returns false: nodes receive the shared state as a full sync.
  bool share(const methods::ServerState& state) override;
  /// Masks the uploads of all rounds from now on ([secure_aggregation]).
  void mask(MaskedTerms terms) { masked_.use(std::move(terms)); }
  std::optional<fed::UnmaskedSum> unmasked(const methods::RoundView& round,
                                           std::span<const methods::ClientUpdate> updates) override;
  bool recover() override { return masked_.recover(); }
  /// Reports the exchange's outcome as "left out: " and the reason.
  std::string note_left_out(int64_t round, int64_t client, const std::string& why, double moved) override;

 private:
  void score(const fed::Task& task, const fed::Exchange& exchange);
  void score_by_clients(const fed::Task& task, const fed::Exchange& exchange);
  /// Validates a reply to a scoring task; replies to other tasks pass. \throws kData for a score that is impossible for
  /// `asked`
  void check_answer(const fed::Task& asked, const fed::Reply& reply) const;
  /// Reports the clients whose nodes give no scores of test rows that they have. \return their ids
  std::set<int64_t> report_nodes_without_scores(const fed::Exchange& exchange) const;
  /// Returns the scoring task of each client that has test rows, by client: of all its rows. \throws kData when no
  /// client has test rows
  std::map<int64_t, fed::Task> shares_of(const fed::Task& task) const;
  bool is_left_out(int64_t client) const;  // true: a round after the client's last one (`until`) is committed

  Fleet fleet_;
  Gathering gathering_;
  MaskedRounds masked_;
  fed::Fabric* evaluator_ = nullptr;
  std::function<void(int64_t rounds)> on_round_{};
};

}  // namespace evenkeel::flower
