/// \file  Makes a node's training private for its single rows, also towards the server. The node's operator switches it
/// on. The account is a ledger (privacy/ledger.h) in `privacy/` of the node's memory folder, over all runs.
///
/// The key of a round's draws is derived from the ledger's key and from a digest of everything that the upload depends
/// on. So a repeated task gives the same upload at no cost. Any other task has other draws and is charged. On a GPU
/// repeated tasks differ in their last bits, so each has its own draws and is charged.
#pragma once

#include <memory>
#include <string>

#include "fed/exchange/client_context.h"
#include "flower/federation/client_options.h"
#include "flower/federation/content_digests.h"
#include "privacy/ledger.h"

namespace evenkeel::flower {

/// Opens the node's ledger; null if privacy is off. \throws kConfig when options are missing or out of range, or when
/// privacy is off and an earlier start of the node has a ledger here; as privacy::Ledger
std::shared_ptr<privacy::Ledger> open_ledger(const NodeClientOptions& options);

/// Checks that a run can be private for single rows. \throws kConfig naming the reason why it cannot
void require_can_be_private(const fed::RunConfig& config);

/// What the node's privacy in one run depends on.
struct PrivateRun {
  std::string run;
  fed::RunConfig config;
  int64_t rows = 0;  ///< the node's training rows
  ContentDigests content;
};

/// The privacy of one run. Threads: one.
class NodePrivacy : public fed::ExamplePrivacy {
 public:
  /// Plans the run: takes the noise multiplier of the run's last plan if its options were equal, or else options.noise
  /// or, if that is 0, the least multiplier that keeps all rounds within what is left of the budget.
  /// \param shared  shared state of the run; borrowed
  /// \throws kConfig when the lot is larger than the rows, or the budget allows no noise multiplier
  NodePrivacy(std::shared_ptr<privacy::Ledger> ledger, const NodePrivacyOptions& options, PrivateRun run,
              const fed::SharedState& shared);

  /// Describes the plan for the operator.
  std::string summary() const;
  train::PrivateSteps begin(const fed::Task& task, const fed::PrivateRound& round) override;

 private:
  privacy::Event event() const { return {.noise = plan_.noise, .sampling = plan_.sampling}; }
  privacy::Budget budget() const { return {.epsilon = plan_.epsilon, .delta = plan_.delta}; }
  std::string digest_of(const fed::Task& task, const fed::PrivateRound& round) const;
  void charge(const std::string& digest, const fed::Task& task, int64_t steps);

  std::shared_ptr<privacy::Ledger> ledger_;
  PrivateRun run_;
  const fed::SharedState& shared_;
  int64_t lot_ = 0;
  privacy::Plan plan_;
};

}  // namespace evenkeel::flower
