/// \file  One whole round of federated fine-tuning, from the draw of its clients to the state after it.
#pragma once

#include "fed/round/progress.h"
#include "fed/round/server.h"
#include "fed/store/journal.h"
#include "fed/store/round_records.h"
#include "fed/store/run_checkpoint.h"

namespace evenkeel {

struct RoundResult {
  Snapshot next;  ///< not committed yet
  RoundRecord record;
};

/// What a run begins with; all clients know their part of it then.
Snapshot before_first_round(const Server& server, Fabric& fabric);

/// Tells all clients what they hold alike in `now`, and gives each its memory: for a run that goes on.
void restore_clients(const Server& server, Fabric& fabric, const Snapshot& now);

/// Runs the round that follows `now`, whose news the clients have. Uploads that `journal` holds already are not made
/// again; one that stayed elsewhere (Reply::crossed) counts for this call alone. The result depends on `now` and the
/// config alone: not on the order in which clients ran or replied, nor on interruptions.
/// \throws Error naming round, client and method; Interrupted between optimiser steps, with all finished uploads kept.
RoundResult run_round(const Server& server, Fabric& fabric, const Snapshot& now, RoundJournal journal,
                      RunProgress& progress);

/// Gives freed memory back where the base has changed: such a change comes and goes in pieces that fit nowhere in what
/// training and the state before left free, several GiB for a large model.
void trim_heap(const ServerState& state);

}  // namespace evenkeel
