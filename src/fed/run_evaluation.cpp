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

}  // namespace

ServerState last_state(const Experiment& e, const Checkpoint& checkpoint) {
  auto last = checkpoint.read();
  if (last.commit.round == 0) return e.method->initialize(e.server());
  check_state(last.snapshot.state, e.sites, (last.folder / "state.safetensors").string());
  return std::move(last.snapshot.state);
}

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
  const auto sent = encode(e.method->broadcast(state, client, {.round = state.round}), e.config.train.transport_dtype);
  return e.method->prepare(received(decode(sent.bytes, "an evaluation")), e.view(client, state, state.round, memory));
}

TaskScore evaluate_prepared(const Experiment& e, const Common& common, const LocalSetup& setup,
                            const EvaluationPoint& point, const std::string& name,
                            const EvaluationProgress& on_progress, std::vector<Prediction>* predictions) {
  const auto& task = find_task(name);
  const auto rows = test_rows(task, e.config.data.rows(e.config.evaluate.limit, e.seed()));
  const ForwardOptions forward{.adapters = &setup.adapters, .base_change = &common.base_change, .router = setup.router};
  const auto report = [&](int64_t done, int64_t all) {
    if (on_progress) on_progress(name, point.budget, done, all);
  };
  auto score = evaluate_task(*e.model, e.tokenizer, forward, task, rows, e.evaluation(), predictions, report);
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

namespace {

void read_choice(const JsonView& json, TaskScore& score) {
  score.accuracy = json.at("accuracy").number();
  score.accuracy_cased = json.at("accuracy_cased").number();
  score.accuracy_lowercase = json.at("accuracy_lowercase").number();
  score.invalid_rate = json.at("invalid_rate").number();
  score.accuracy_valid = json.at("accuracy_valid").number();
  score.accuracy_likelihood = json.at("accuracy_likelihood").number();
  score.chance = json.at("chance").number();
  score.majority = json.at("majority").number();
}

void read_text(const JsonView& json, TaskScore& score) {
  score.kind = AnswerKind::kText;
  score.exact_match = json.at("exact_match").number();
  score.f1 = json.at("f1").number();
  if (const auto found = json.find("bert_score")) score.bert_score = found->number();
  score.empty_rate = json.at("empty_rate").number();
  score.context_cut = json.at("context_cut").number();
}

}  // namespace

TaskScore task_score(const JsonView& json) {
  TaskScore score;
  score.task = json.at("task").string();
  score.budget = json.at("budget").number();
  score.reading = json.string_or("reading", "");
  score.top_k = json.at("top_k").integer(0);
  score.rows = json.at("rows").integer(0);
  score.questions = json.integer_or("questions", 0, 0);
  json.has("exact_match") ? read_text(json, score) : read_choice(json, score);
  score.seconds = json.at("seconds").number();
  return score;
}

}  // namespace evenkeel
