/// \file  Runs one round of federated fine-tuning: draw, broadcast, local training, upload, aggregation.
#pragma once

#include "fed/round/progress.h"
#include "fed/round/server.h"
#include "fed/store/journal.h"
#include "fed/store/round_records.h"
#include "fed/store/run_checkpoint.h"

namespace evenkeel::fed {

/// The outcome of a round.
struct RoundResult {
  Snapshot next;  ///< the state after the round, not committed yet
  RoundRecord record;
};

/// Makes the state before the first round and sends the shared state to each client.
Snapshot before_first_round(const Server& server, Fabric& fabric);

/// Sends all clients the shared state of `now` and gives each its memory, when a run is resumed.
void restore_clients(const Server& server, Fabric& fabric, const Snapshot& now);

/// Runs the round that follows `now`. The clients must have the shared state of `now`. Clients whose upload is in
/// `journal` do not train again. Uploads that stayed with a client's process (RemoteUpload) are not in the journal, so
/// after an interruption those clients train again. If no client is lost or late, the result depends only on `now`, the
/// config and, with secret privacy noise, its key. The order of replies and interruptions do not matter.
/// \param privacy  privacy account and noise; not null exactly if privacy.unit is "client"
/// \throws Error naming round, client and method; BudgetSpent (fed/round/client_privacy.h) when the privacy budget does
/// not allow the release; Interrupted between optimiser steps, with all finished uploads in the journal
RoundResult run_round(const Server& server, Fabric& fabric, const Snapshot& now, RoundJournal journal,
                      RunProgress& progress, ClientPrivacy* privacy = nullptr);

/// Returns freed heap memory to the system if the state has a base change (Common::base_change). Such changes are
/// allocated and freed in pieces that do not fit into the gaps left by training; for a large model this is several GiB.
void trim_heap(const methods::ServerState& state);

}  // namespace evenkeel::fed
