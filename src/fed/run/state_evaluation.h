/// \file  Evaluation of a federated state. Evaluation is a client that never trains: the state is broadcast to it, it
/// prepares as any client of that budget does, and then answers the tasks. One code path, so no skew between training
/// and evaluation. Example:  auto scores = evaluate_run("runs/demo", {.budgets = {0.125, 1.0}});  score_table(scores)
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

namespace evenkeel {

/// Told while it lasts; may throw to interrupt.
using EvaluationProgress = std::function<void(const std::string& task, double budget, int64_t done, int64_t rows)>;

/// The points that `[evaluate]` asks for, budget by budget. Without experts there is no reading b. Where `state` is
/// routed with what does not travel (fed/exchange/unexportable_routing.h), each point is followed by the same as others
/// serve it; but for reading a, whose cut adapter is not what is exported.
std::vector<EvaluationPoint> evaluation_points(const Server& server, const ServerState& state);

/// With `evaluate.per_client`, every client's budget with each reading, on its own test rows, where it has any, and on
/// those of all.
std::vector<EvaluationPoint> client_points(const Server& server);

/// Of server.tasks, those whose rows are those that clients bring.
std::vector<std::string> client_tasks(const Server& server);

/// Reads all rows that the run scores, those of clients too, and checks what can be checked without the
/// model's weights. \throws kIo, kData naming file or task, and row, of the first that cannot be scored
void check_evaluation(const Experiment& e);

/// Told of a client that gives no score of its rows, and why.
using LossCallback = std::function<void(int64_t client, const std::string& why)>;

/// One task at one point, on the rows that `[evaluate]` and `[data]` say, by the fabric's evaluator.
/// \param ask  its reading is the point's \param on_loss  empty: such a client is an error
/// \return nothing where everybody who was to score is lost
std::optional<Scored> score(const Server& server, Fabric& fabric, const ServerState& state,
                            const EvaluationPoint& point, Score ask, const EvaluationProgress& on_progress = {},
                            const LossCallback& on_loss = {});

/// Told of each score as soon as it is there.
using ScoreCallback = std::function<void(const TaskScore&, std::span<const Prediction>)>;

/// What an evaluation asks and tells while it lasts; each may be empty.
struct EvaluationHooks {
  /// A score that is there already is not made again.
  std::function<std::optional<TaskScore>(const EvaluationPoint& point, const std::string& task)> known{};
  EvaluationProgress on_progress{};
  ScoreCallback on_score{};  ///< of those that are made; with predictions if they are asked for
  /// A score, or the part of it that `client` should have given, is missing. Empty: that is an error.
  std::function<void(const EvaluationPoint& point, const std::string& task, int64_t client, const std::string& why)>
      on_missing{};
  bool predictions = false;
};

/// All tasks of `[evaluate]` at all its points, task by task within each budget; then, client by client, what
/// `evaluate.per_client` asks for, without those that are missing. On the rows of all, one scoring serves every client
/// of that budget and rank.
std::vector<TaskScore> evaluate_state(const Server& server, Fabric& fabric, const ServerState& state,
                                      const EvaluationHooks& hooks = {});

/// The state after the last committed round, which the fabric's clients then know; before the first one, what a run
/// begins with.
ServerState last_state(Experiment& experiment, const Checkpoint& checkpoint);

/// What `evenkeel evaluate --run` may change of the run's own `[evaluate]`.
struct RunEvaluation {
  std::optional<std::vector<std::string>> tasks;
  std::optional<std::vector<double>> budgets;
  std::optional<int64_t> limit;
  std::filesystem::path journal{};  ///< what is answered is kept there by batch and not answered again; empty: nowhere
  bool predictions = true;          ///< whether on_score is told them
  std::function<void(ExperimentConfig&)> adjust;  ///< anything else, e.g. decoding or where the data is
};

/// Scores the last committed round of a run folder, task by task within each budget. Writes nothing into it.
/// \throws kIo when no run lives there; kConfig, kData, kCheckpoint as make_experiment().
std::vector<TaskScore> evaluate_run(const std::filesystem::path& folder, const RunEvaluation& changes,
                                    const EvaluationProgress& on_progress = {}, const ScoreCallback& on_score = {});

}  // namespace evenkeel
