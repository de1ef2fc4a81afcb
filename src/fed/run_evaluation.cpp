#include "fed/run_evaluation.h"

#include "base/files.h"
#include "fed/run_folder.h"

namespace evenkeel {
namespace {

/// Not the id of any client that trains.
constexpr int64_t kEvaluator = -1;

ClientProfile evaluator(const Experiment& e, const EvaluationPoint& point) {
  const auto& spec = e.model->spec();
  const bool cut = point.reading == "a";
  return {.id = kEvaluator,
          .budget = point.budget,
          .top_k = cut ? spec.top_k : active_experts(spec, point.budget, "evaluation budget"),
          .rank = cut ? std::min(e.config.rank_at(point.budget), e.max_rank()) : e.max_rank(),
          .examples = 0,
          .trains = false};
}

void apply(const RunEvaluation& changes, ExperimentConfig& config) {
  auto& evaluate = config.evaluate;
  if (changes.tasks) evaluate.tasks = expand_tasks(*changes.tasks);
  if (changes.budgets) evaluate.budgets = *changes.budgets;
  if (changes.limit) evaluate.limit = *changes.limit;
  if (changes.adjust) changes.adjust(config);
}

ServerState last_state(const Experiment& e, const Checkpoint& checkpoint) {
  const auto last = checkpoint.last();
  return last ? checkpoint.load(last->round).state : e.method->initialize(e.server());
}

}  // namespace

std::vector<EvaluationPoint> evaluation_points(const Experiment& e) {
  const bool rank_method = find_method(e.config.method.name).family == MethodFamily::kRank;
  const bool sparse = e.model->spec().num_experts > 0;
  std::vector<EvaluationPoint> points;
  for (double budget : e.config.evaluate.budgets) {
    if (!rank_method) points.push_back({.budget = budget});
    for (const auto& reading : e.config.evaluate.readings)
      if (rank_method && (sparse || reading == "a")) points.push_back({budget, reading});
  }
  return points;
}

LocalSetup evaluation_setup(const Experiment& e, const ServerState& state, const EvaluationPoint& point) {
  const auto client = evaluator(e, point);
  TensorMap memory;
  const ClientView view{.client = client,
                        .sites = e.sites,
                        .common = state.common,
                        .scale = e.scale(),
                        .round = state.round,
                        .seed = e.seed(),
                        .memory = memory};
  const auto sent = e.method->broadcast(state, client, {.round = state.round});
  return e.method->prepare(through_wire(sent, e.config.train.transport_dtype), view);
}

TaskScore evaluate_prepared(const Experiment& e, const Common& common, const LocalSetup& setup,
                            const EvaluationPoint& point, const std::string& name,
                            const EvaluationProgress& on_progress, std::vector<Prediction>* predictions) {
  const auto& task = find_task(name);
  const auto rows = test_rows(task, e.config.data.path, e.config.evaluate.limit, e.seed());
  const ForwardOptions forward{.adapters = &setup.adapters, .base_change = &common.base_change, .router = setup.router};
  const auto report = [&](int64_t done, int64_t all) {
    if (on_progress) on_progress(name, point.budget, done, all);
  };
  auto score = evaluate_task(*e.model, e.tokenizer, forward, task, rows, e.config.evaluate.options(e.config.data.form),
                             predictions, report);
  score.budget = point.budget;
  score.reading = point.reading;
  score.top_k = setup.router.top_k;
  return score;
}

std::vector<TaskScore> evaluate_run(const fs::path& folder, const RunEvaluation& changes,
                                    const EvaluationProgress& on_progress, const ScoreCallback& on_score) {
  auto config = run_config(folder);
  apply(changes, config);
  const auto e = make_experiment(std::move(config), Purpose::kEvaluate);
  const auto state = last_state(e, Checkpoint(folder / "checkpoint"));
  std::vector<TaskScore> scores;
  for (const auto& point : evaluation_points(e)) {
    const auto setup = evaluation_setup(e, state, point);
    for (const auto& task : e.config.evaluate.tasks) {
      std::vector<Prediction> predictions;
      scores.push_back(evaluate_prepared(e, state.common, setup, point, task, on_progress, &predictions));
      if (on_score) on_score(scores.back(), predictions);
    }
  }
  return scores;
}

TaskScore task_score(const Json& json) {
  return {.task = json.at("task"),
          .budget = json.at("budget"),
          .reading = json.value("reading", ""),
          .top_k = json.at("top_k"),
          .rows = json.at("rows"),
          .accuracy = json.at("accuracy"),
          .accuracy_cased = json.at("accuracy_cased"),
          .accuracy_lowercase = json.at("accuracy_lowercase"),
          .invalid_rate = json.at("invalid_rate"),
          .accuracy_valid = json.at("accuracy_valid"),
          .accuracy_likelihood = json.at("accuracy_likelihood"),
          .chance = json.at("chance"),
          .majority = json.at("majority"),
          .seconds = json.at("seconds")};
}

}  // namespace evenkeel
