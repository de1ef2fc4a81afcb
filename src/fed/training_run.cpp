#include "fed/training_run.h"

#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "fed/manifest.h"
#include "fed/round.h"
#include "fed/run_evaluation.h"

namespace evenkeel {
namespace {

Snapshot last_snapshot(Run& run) {
  const auto last = run.folder.checkpoint().last();
  auto snapshot = last ? run.folder.checkpoint().load(last->round) : before_first_round(run.experiment);
  if (last) run.folder.save_adapter(snapshot.state, run.experiment);
  rehearse(run.experiment, snapshot.state);
  return snapshot;
}

bool evaluation_is_due(const ExperimentConfig& config, int64_t round) {
  if (round == 0) return config.evaluate.before;
  return round == config.train.rounds || (config.evaluate.every > 0 && round % config.evaluate.every == 0);
}

std::optional<TaskScore> known_score(const std::vector<Json>& lines, int64_t round, const EvaluationPoint& point,
                                     const std::string& task) {
  for (const auto& line : lines)
    if (line.at("round") == round && line.at("budget") == point.budget && line.value("reading", "") == point.reading &&
        line.at("task") == task)
      return task_score(line);
  return std::nullopt;
}

OrderedJson evaluation_line(const Experiment& e, int64_t round, const TaskScore& score) {
  OrderedJson line = {{"round", round}, {"method", e.config.method.name}};
  line.update(to_json(score));
  return line;
}

class EvaluationLine {
 public:
  void operator()(const std::string& task, double budget, int64_t done, int64_t rows) {
    line_.update(concat(task, " at budget ", budget, ", ", done, "/", rows, " rows"));
    if (interrupt_requested()) throw Interrupted(concat("stopped while evaluating ", task));
  }

 private:
  log::Progress line_{"evaluate"};
};

/// Scores `state` on all tasks at all budgets; what evaluations.jsonl holds already is not done again.
std::vector<TaskScore> evaluate_round(const Run& run, const ServerState& state) {
  const auto& e = run.experiment;
  const auto known = run.folder.evaluations();
  std::vector<TaskScore> scores;
  EvaluationLine progress;
  for (const auto& point : evaluation_points(e)) {
    std::optional<LocalSetup> setup;
    for (const auto& task : e.config.evaluate.tasks) {
      if (const auto score = known_score(known, state.round, point, task)) {
        scores.push_back(*score);
        continue;
      }
      if (!setup) setup = evaluation_setup(e, state, point);
      scores.push_back(evaluate_prepared(e, state.common, *setup, point, task, std::ref(progress)));
      run.folder.add_evaluation(evaluation_line(e, state.round, scores.back()));
    }
  }
  return scores;
}

void log_beginning(const Experiment& e, int64_t rounds_done) {
  size_t rows = 0;
  for (const auto& shard : e.shards.examples) rows += shard.size();
  log::info("[train] ", e.config.method.name, " on ", e.model_folder.string(), ": ", e.clients.size(), " clients, ",
            rows, " rows, rounds ", rounds_done + 1, " to ", e.config.train.rounds);
}

void log_round(const OrderedJson& record, int64_t rounds) {
  log::info("[train] round ", record["round"].get<int64_t>(), "/", rounds, ": loss ", record["loss"].get<double>(),
            ", ", record["tokens"].get<int64_t>(), " tokens, ",
            static_cast<int64_t>(record["seconds"]["tokens_per_second"].get<double>()), " tokens/s");
}

Snapshot advance(const Run& run, const Snapshot& now, RunProgress& progress) {
  const auto& e = run.experiment;
  const RoundJournal journal(run.folder.checkpoint().uploads(now.state.round + 1), e.config.train.transport_dtype);
  auto result = run_round(e, now, journal, progress);
  run.folder.commit(result.next, result.record, e);
  log_round(result.record, e.config.train.rounds);
  return std::move(result.next);
}

}  // namespace

Run begin_run(ExperimentConfig config) {
  const fs::path folder = config.folder();
  RunFolder::prepare(folder);
  config.resolve();
  auto experiment = make_experiment(std::move(config), Purpose::kTrain);
  auto run_folder = RunFolder::create(folder, experiment);
  return {std::move(experiment), std::move(run_folder)};
}

Run resume_run(const fs::path& folder, ExperimentConfig config) {
  if (RunFolder::nothing_began(folder)) {
    log::warning("[train] ", folder.string(), " holds no run yet: this one begins");
    config.output.dir = folder.string();
    return begin_run(std::move(config));
  }
  config = run_config(folder);
  check_manifest(load_json(folder / "manifest.json", kCheckpoint));
  auto experiment = make_experiment(std::move(config), Purpose::kTrain);
  return {std::move(experiment), RunFolder::open(folder)};
}

std::vector<TaskScore> complete_run(Run& run) {
  const auto& config = run.experiment.config;
  Snapshot now = last_snapshot(run);
  if (now.state.round < config.train.rounds) log_beginning(run.experiment, now.state.round);
  RunProgress progress(run.experiment, now.state.round);
  for (;;) {
    std::vector<TaskScore> scores;
    if (evaluation_is_due(config, now.state.round)) scores = evaluate_round(run, now.state);
    if (now.state.round >= config.train.rounds) return scores;
    now = advance(run, now, progress);
  }
}

}  // namespace evenkeel
