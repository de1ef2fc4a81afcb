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

#include "fed/checkpoint.h"
#include "fed/experiment.h"
#include "scoring/evaluation.h"

namespace evenkeel {

/// Told while it lasts; may throw to interrupt.
using EvaluationProgress = std::function<void(const std::string& task, double budget, int64_t done, int64_t rows)>;

/// One way of looking at the global state: a budget and, with a rank method, what it means.
struct EvaluationPoint {
  double budget = 1.0;
  std::string reading{};  ///< a or b, see TaskScore; else empty
};

/// The state after the last committed round; before the first one, what a run begins with.
ServerState last_state(const Experiment& experiment, const Checkpoint& checkpoint);

/// The points that `[evaluate]` asks for, budget by budget. Without experts there is no reading b.
std::vector<EvaluationPoint> evaluation_points(const Experiment& experiment);

/// The setup an evaluation uses: adapters and router options as the method prepares them for a client of that budget.
LocalSetup evaluation_setup(const Experiment& experiment, const ServerState& state, const EvaluationPoint& point);

/// One task at one prepared point, on the rows that `[evaluate]` and `[data]` say.
TaskScore evaluate_prepared(const Experiment& experiment, const Common& common, const LocalSetup& setup,
                            const EvaluationPoint& point, const std::string& task,
                            const EvaluationProgress& on_progress = {}, std::vector<Prediction>* predictions = nullptr);

/// What `evenkeel evaluate --run` may change of the run's own `[evaluate]`.
struct RunEvaluation {
  std::optional<std::vector<std::string>> tasks;
  std::optional<std::vector<double>> budgets;
  std::optional<int64_t> limit;
  std::function<void(ExperimentConfig&)> adjust;  ///< anything else, e.g. decoding or where the data is
};

/// Told of each score as soon as it is there.
using ScoreCallback = std::function<void(const TaskScore&, std::span<const Prediction>)>;

/// Scores the last committed round of a run folder, task by task within each budget. Writes nothing.
/// \throws kIo when no run lives there; kConfig, kData, kCheckpoint as make_experiment().
std::vector<TaskScore> evaluate_run(const std::filesystem::path& folder, const RunEvaluation& changes,
                                    const EvaluationProgress& on_progress = {}, const ScoreCallback& on_score = {});

/// Reads back what to_json(TaskScore) wrote. \throws naming the place of a value that is missing or of another type.
TaskScore task_score(const JsonView& json);

}  // namespace evenkeel
