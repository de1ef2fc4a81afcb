/// \file  Evaluates a federated state. An evaluation client, which never trains, receives the broadcast, prepares it as
/// any client of its budget does, and answers the tasks. Training and evaluation thus use the same code.
/// Example:  auto scores = evaluate_run("runs/demo", {.budgets = {{0.125, 1.0}}});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fed/run/make_experiment.h"
#include "fed/store/run_checkpoint.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::fed {

/// Receives progress: rows done of `rows`. It may throw to interrupt the evaluation.
using EvaluationProgress = std::function<void(const std::string& task, double budget, int64_t done, int64_t rows)>;

/// Returns the keys of the event "progress" of an evaluation (docs/json-lines.md).
OrderedJson evaluation_progress(const std::string& task, double budget, int64_t done, int64_t rows);

/// Lists the points of `[evaluate]`, budget by budget. Dense models have no rank evaluation mode b. If an exported
/// adapter cannot hold the routing of `state` (fed/exchange/unexportable_routing.h), each point is followed by the same
/// point as other programs serve it (ServedBy). Points of mode a have no such second point, because the adapter cut to
/// r_c is not exported.
std::vector<EvaluationPoint> evaluation_points(const Server& server, const methods::ServerState& state);

/// Lists the points of `evaluate.per_client`: for every client's budget and rank evaluation mode, its own test rows (if
/// it has any) and the rows of all clients. Empty if per_client is false.
/// \param rounds  rounds that are done; clients that do not take part then have no points
std::vector<EvaluationPoint> client_points(const Server& server, int64_t rounds);

/// Returns the tasks of server.tasks with rows that belong to clients.
std::vector<std::string> client_tasks(const Server& server);

/// Reads all test rows of the run, including the clients' own, and checks everything that does not need the weights.
/// \throws kIo, kData naming file or task, and row, of the first row that cannot be scored
void check_evaluation(const Experiment& e);

/// Reports a client that returns no score, and why.
using LostCallback = std::function<void(int64_t client, const std::string& why)>;

/// A requested score, and callbacks about it.
struct ScoreRequest {
  Score ask;  ///< the task and options; its rank evaluation mode is replaced by the point's
  EvaluationProgress on_progress{};
  EvaluationProgress on_clients{};  ///< as EvaluationHooks::on_clients
  LostCallback on_lost{};           ///< empty: a lost client is an error
};

/// Scores one task at one point, with the fabric's evaluation client, on the rows of `[evaluate]` and `[data]`.
/// \return nullopt if every client that was to score is lost
std::optional<Scored> score(const Server& server, Fabric& fabric, const methods::ServerState& state,
                            const EvaluationPoint& point, const ScoreRequest& request);

/// Receives each score when it is ready.
using ScoreCallback = std::function<void(const Scored&)>;

/// Callbacks of an evaluation. Each may be empty.
struct EvaluationHooks {
  /// Returns a score that already exists, so that it is not computed again.
  std::function<std::optional<scoring::TaskScore>(const EvaluationPoint& point, const std::string& task)> known{};
  EvaluationProgress on_progress{};
  /// Receives progress when nodes score, which report no rows: clients done of all clients.
  EvaluationProgress on_clients{};
  /// Receives computed scores; with predictions if `predictions` is true, with items if evaluate.items is.
  ScoreCallback on_score{};
  /// Reports that a score, or `client`'s part of it, is missing. If empty, a missing score is an error.
  std::function<void(const EvaluationPoint& point, const std::string& task, int64_t client, const std::string& why)>
      on_missing{};
  bool predictions = false;
};

/// Scores all tasks at each of evaluation_points(), point by point, then the client_tasks() at each of client_points().
/// On the rows of all clients, clients of equal budget and rank share one score.
/// \return the scores, without missing ones
std::vector<scoring::TaskScore> evaluate_state(const Server& server, Fabric& fabric, const methods::ServerState& state,
                                               const EvaluationHooks& hooks = {});

/// Checks the state of a committed round and sends its shared state to the fabric's clients. If no round is committed,
/// it makes the initial state.
methods::ServerState state_at(Experiment& experiment, CommittedRound committed);

/// Values of a run's `[evaluate]` that `evenkeel evaluate --run` can change.
struct RunEvaluation {
  std::optional<std::vector<std::string>> tasks;
  std::optional<std::vector<double>> budgets;
  std::optional<int64_t> limit;
  std::filesystem::path journal{};  ///< file that stores answers by batch, so that they are not repeated; empty: none
  std::string base{};               ///< folder of a base model that was moved; empty: it was not
  bool best = false;                ///< true: score the best round (fed/run/best_round.h), false: the last one
  bool predictions = true;          ///< true: on_score receives predictions
  std::function<void(ExperimentConfig&)> adjust;  ///< changes other values, e.g. decoding or data paths; may be empty
  /// Receives, for each task, the number of rows that are left out because they cannot be asked, and a note that gives
  /// the reason of the first (PreparedTask::note()). May be empty.
  std::function<void(int64_t count, const std::string& note)> on_left_out{};
  /// Receives the files that the evaluation reads and the run folder's files, before the weights are loaded. It may
  /// throw. May be empty.
  std::function<void(std::vector<std::filesystem::path> files)> on_inputs{};
};

/// Scores the last committed round of a run folder, or its best one, in the order of evaluate_state(). Does not write
/// into the folder.
/// \throws as config_with_base(); kConfig, kData, kCheckpoint as make_experiment()
std::vector<scoring::TaskScore> evaluate_run(const std::filesystem::path& folder, const RunEvaluation& changes,
                                             const EvaluationProgress& on_progress = {},
                                             const ScoreCallback& on_score = {});

}  // namespace evenkeel::fed
