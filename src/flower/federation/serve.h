/// \file  Runs a federated experiment whose clients are nodes. serve() waits until all clients have joined, runs the
/// rounds, and writes the usual run folder. It adds a subfolder:
///
///   federation/members.json      the roster (flower/federation/roster.h)
///   federation/nodes.json        the coordinator's nodes (flower/server/coordinator.h)
///   federation/audit.jsonl       one line per event, such as a join or a reply (fed/store/audit.h)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/system/interrupt.h"
#include "fed/store/run_request.h"
#include "flower/federation/fleet_fabric.h"
#include "flower/federation/fleet_metrics.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::flower {

/// The options of serve().
struct ServeOptions {
  fed::RunRequest request{};
  /// Continues the run in the run folder if it has one; otherwise a new run begins.
  bool resume = false;
  std::optional<int64_t> from_round{};  ///< round to resume from, instead of the last committed one
  double patience_s = 300;              ///< FleetTerms::patience_s
  bool evaluate = true;  ///< false: the server scores nothing and needs no weights, only shapes and tokenizer
  StopRequest stop{};
  std::function<void(const FleetStatus& status)> on_status{};  ///< called after each change, by the thread of serve()
};

/// The result of serve().
struct ServedRun {
  /// The run folder.
  std::filesystem::path folder;
  /// The scores of the last round.
  std::vector<scoring::TaskScore> scores;
};

/// Runs a served experiment from start to end, and blocks until it is over. It reads rows, encoder and starting adapter
/// before it makes the grid. It loads the weights when all clients have joined. With `resume` and `train.rounds=N`
/// among the settings, the run has N rounds in total.
/// \param grid_in  makes the grid; its argument is the folder for the grid's state
/// \return the run folder and the scores of the last round
/// \throws Interrupted when `stop` asks for it, at a place from which `--resume` continues
ServedRun serve(const ServeOptions& options,
                const std::function<std::unique_ptr<Grid>(const std::filesystem::path& folder)>& grid_in);

}  // namespace evenkeel::flower
