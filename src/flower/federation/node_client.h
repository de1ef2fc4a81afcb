/// \file  Implements a client on its own machine, with its own base and rows. It answers the server's envelopes
/// (flower/federation/envelope.h) and does only what it agreed to. flower/federation/node.h transports the envelopes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fed/run/experiment.h"
#include "flower/federation/agreement.h"
#include "flower/federation/client_options.h"
#include "flower/federation/envelope.h"
#include "flower/federation/kept_payloads.h"
#include "flower/federation/node_memory.h"
#include "flower/federation/node_record.h"
#include "privacy/ledger.h"

namespace evenkeel::flower {

/// Answers envelopes of a server. Threads: one at a time.
class NodeClient {
 public:
  /// \throws as open_ledger() (flower/federation/node_privacy.h)
  explicit NodeClient(NodeClientOptions options);

  /// Checks kind and size of an envelope before its payload is received. \throws kData when it is refused, with the
  /// agreed limit
  /// \return false for a run that the node has not agreed to: its payload is not to be received, and answer() says so
  bool consent(const Envelope& envelope, int64_t payload_bytes) const;
  /// Answers an envelope; a task is carried out before this returns. \throws Error when it refuses or fails, which the
  /// caller reports to the server; Interrupted, Stopped, RunOver
  Envelope answer(const Envelope& envelope);
  /// Reports that the server took the last answer. If it was the reply of a round, the client's state after it becomes
  /// valid.
  void delivered();
  /// Reports that the server did not take the last answer. If it was the reply of a round, the client's state
  /// after it is deleted. \param why  for the log
  void not_delivered(const std::string& why);
  /// Returns true while the node takes part in a run with masked rounds, which have several short messages each.
  bool is_masked() const;
  /// Returns the record of this node's work.
  NodeRecord& record() { return record_; }

 private:
  struct Agreement;
  struct Joined;

  void hear(const Envelope& envelope);
  void settle_memory();
  Envelope answered(const Envelope& envelope);
  Envelope consider(const Envelope& envelope);
  Envelope accept(const Envelope& envelope, Offer offer);
  Envelope on_reply(const Envelope& envelope);
  Envelope work(const Envelope& envelope);
  Envelope keep(const Envelope& envelope);
  Envelope part(const Envelope& envelope);
  /// Makes the training of a run that is being joined private. \return the words for the operator
  std::string make_private(Joined& joined, const methods::ClientProfile& self);
  Envelope join_run(const Envelope& envelope, Joined joined, class AgreedRun agreed);
  void admit(const fed::Task& task);
  void admit_score(const fed::Score& score);

  NodeClientOptions options_;
  std::shared_ptr<privacy::Ledger> ledger_;  // null: no privacy
  NodeRecord record_;
  KeptPayloads kept_;
  std::shared_ptr<Agreement> agreement_;
  std::string agreed_summary_;  // name of the run that was accepted last, and its summary for the owner
  /// What became of the last training, and the run it was of, until settle_memory().
  std::optional<std::pair<std::string, WorkOutcome>> told_;
  bool is_of_round_ = false;  // the last answer ends a round's training
};

}  // namespace evenkeel::flower
