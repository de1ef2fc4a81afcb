/// \file  Keeps a node's account in runs that protect whole clients by noise of the clients themselves
/// (`[privacy] unit = "client"` with `[secure_aggregation] mode = "masks"`; fed/exchange/noisy_summand.h). The account
/// is a ledger (privacy/ledger.h) in `client-privacy/` of the node's memory folder, over all runs. A round is charged
/// before its upload leaves, with the noise multiplier of the honest nodes' noise together. The server need not be
/// trusted with the noise.
#pragma once

#include <string>

#include "fed/config/run_config.h"
#include "fed/exchange/noisy_summand.h"
#include "flower/federation/client_options.h"
#include "privacy/ledger.h"
#include "secure/round_context.h"

namespace evenkeel::flower {

/// Checks before a node joins that its owner's budget and the run's config go together. \throws kConfig for a run
/// without noise of the clients where the owner has a budget
void require_client_privacy_as_agreed(const ClientBudgetOptions& budget, const fed::RunConfig& config);

/// Checks that a proposed round has as much noise as the config says, and that its sum fits into the integers.
/// \throws kData, kConfig naming what differs
void check_noise(const secure::RoundContext& context, const fed::ExperimentConfig& config);

/// The account in one run. Threads: one.
class NodeNoise : public fed::ClientNoise {
 public:
  /// Opens the ledger and plans the run: with the owner's budget, or else the config's.
  /// \param run  id of the run \throws as privacy::Ledger
  NodeNoise(const NodeClientOptions& options, std::string run, fed::RunConfig config);

  /// Checks before a round that the budget allows it. \throws kConfig when it does not
  void require_budget(const secure::RoundContext& context) const;
  crypto::Secret charge(const fed::Task& task, const fed::SummedTerms& terms, std::span<const int64_t> change) override;
  /// Describes the account for the operator.
  std::string summary() const;

 private:
  privacy::Event event(const privacy::MemberNoise& noise, const privacy::Grid& grid, int64_t members) const;
  void require(const privacy::Event& event) const;

  fed::RunConfig config_;
  privacy::Ledger ledger_;
  privacy::Plan plan_;
};

}  // namespace evenkeel::flower
