/// \file  Scores the state of a run under way, and records each score as soon as it is computed.
#pragma once

#include <vector>

#include "base/system/interrupt.h"
#include "fed/exchange/fabric.h"
#include "fed/round/server.h"
#include "fed/run/event_log.h"
#include "fed/run/run_folder.h"
#include "methods/protocol.h"
#include "scoring/task_score.h"

namespace evenkeel::fed {

/// Where evaluate_round() computes scores and records them.
struct ScoredRun {
  const Server& server;
  Fabric& fabric;
  RunFolder& folder;
  EventLog& tensorboard;
  const StopRequest& stop;  ///< called after every batch
};

/// Scores `state` on all tasks at all budgets (evaluate_state()). Scores that evaluations.jsonl already holds are not
/// computed again. Each score goes into the run folder, to TensorBoard and into the event "evaluation".
/// \throws Interrupted when `stop` returns true
std::vector<scoring::TaskScore> evaluate_round(const ScoredRun& run, const methods::ServerState& state);

}  // namespace evenkeel::fed
