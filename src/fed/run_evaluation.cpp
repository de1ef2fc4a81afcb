#include "fed/run_evaluation.h"

#include "base/files.h"
#include "fed/run_folder.h"

namespace evenkeel {
namespace {

/// Not the id of any client that trains.
constexpr int64_t kEvaluator = -1;

ClientProfile evaluator(const Experiment& e, double budget) {
  return {.id = kEvaluator,
          .budget = budget,
          .top_k = active_experts(e.model->spec(), budget, "evaluation budget"),
          .rank = e.server().rank,
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

LocalSetup evaluation_setup(const Experiment& e, const ServerState& state, double budget) {
  const auto client = evaluator(e, budget);
  TensorMap memory;
  const ClientView view{.client = client, .sites = e.sites, .round = state.round, .seed = e.seed(), .memory = memory};
  const auto sent = e.method->broadcast(state, client, {.round = state.round, .participants = {}, .weights = {}});
  return e.method->prepare(through_wire(sent, e.config.train.transport_dtype), view);
}

TaskScore evaluate_prepared(const Experiment& e, const LocalSetup& setup, double budget, const std::string& name,
                            const EvaluationProgress& on_progress, std::vector<Prediction>* predictions) {
  const auto& task = find_task(name);
  const auto rows = test_rows(task, e.config.data.path, e.config.evaluate.limit, e.seed());
  const ForwardOptions forward{.adapters = &setup.adapters, .router = setup.router};
  const auto report = [&](int64_t done, int64_t all) {
    if (on_progress) on_progress(name, budget, done, all);
  };
  auto score = evaluate_task(*e.model, e.tokenizer, forward, task, rows, e.config.evaluate.options(e.config.data.form),
                             predictions, report);
  score.budget = budget;
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
  for (double budget : e.config.evaluate.budgets) {
    const auto setup = evaluation_setup(e, state, budget);
    for (const auto& task : e.config.evaluate.tasks) {
      std::vector<Prediction> predictions;
      scores.push_back(evaluate_prepared(e, setup, budget, task, on_progress, &predictions));
      if (on_score) on_score(scores.back(), predictions);
    }
  }
  return scores;
}

TaskScore task_score(const Json& json) {
  return {.task = json.at("task"),
          .budget = json.at("budget"),
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
