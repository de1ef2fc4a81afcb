#include "fed/run/state_evaluation.h"

#include <map>
#include <tuple>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/system/error_context.h"
#include "fed/round/round.h"
#include "fed/run/best_round.h"
#include "fed/run/contamination.h"
#include "fed/run/make_experiment.h"
#include "fed/run/run_folder.h"
#include "fed/run/stored_config.h"
#include "fed/store/manifest.h"

namespace evenkeel::fed {
namespace {

/// Removes tasks with rows that only a federation's nodes have, because they cannot be scored here.
RunConfig without_rows_elsewhere(const RunConfig& config) {
  const auto& here = config.tasks_here();
  if (here.size() == config->evaluate.tasks.size()) return config;
  EK_CHECK(!here.empty(), kConfig,
           "the run's test rows are at its nodes, which have scored them (evaluations.jsonl): name rows that are here, "
           "as in --tasks files --data FILE");
  log::warning("[evaluate] the nodes' own rows are left out: they are not here");
  return config.with([&](ExperimentConfig& values) { values.evaluate.tasks = here; });
}

/// Returns the config of a run with what another evaluation changes.
RunConfig changed(const RunConfig& run, const RunEvaluation& changes) {
  return without_rows_elsewhere(run.with([&](ExperimentConfig& values) {
    auto& evaluate = values.evaluate;
    if (changes.tasks) evaluate.tasks = *changes.tasks;
    if (changes.budgets) evaluate.budgets = *changes.budgets;
    if (changes.limit) evaluate.limit = *changes.limit;
    if (changes.adjust) changes.adjust(values);
    evaluate.tasks = data::expand_tasks(evaluate.tasks, values.rows());
  }));
}

std::vector<scoring::ServedBy> served_elsewhere(const Server& server, const methods::ServerState& state,
                                                const EvaluationPoint& point) {
  if (!server.config->evaluate.as_exported || server.model.num_experts == 0 || point.rank_eval_mode == "a") return {};
  return server.unexportable_routing(state, point).served_differently();
}

/// Two scores of different clients are equal if these values are equal.
using Alike = std::tuple<std::string, std::string, scoring::ServedBy, double, int64_t>;
Alike alike(const Server& server, const methods::ServerState& state, const EvaluationPoint& point,
            const std::string& task) {
  const auto evaluator = server.evaluator(state, point);
  return {task, point.rank_eval_mode, point.served_by, evaluator.budget, evaluator.rank};
}

std::vector<fs::path> joined(std::vector<fs::path> files, const std::vector<fs::path>& more) {
  files.insert(files.end(), more.begin(), more.end());
  return files;
}

/// Stores answers in `journal` under a key of everything they depend on: config, state, and the files' contents.
/// \param commit  the text of the state's commit.json
void keep_answers(Experiment& e, const std::string& commit, const fs::path& journal) {
  std::string text = e.server.config->text() + commit;
  for (const auto& file : input_files(e.server.config, e.server.model_folder, {}))
    text += concat(file.string(), ' ', fingerprint_of(file).digest, '\n');
  e.fabric.context.answers = std::make_shared<scoring::AnswerJournal>(journal);
  e.fabric.context.answers_of = concat(sha256(text).substr(0, 16), ", ");
}

/// The state of an evaluation while it runs: the scores so far, and the scores on the rows of all clients.
struct Evaluation {
  const Server& server;
  Fabric& fabric;
  const methods::ServerState& state;
  const EvaluationHooks& hooks;
  std::vector<scoring::TaskScore> scores{};
  std::map<Alike, scoring::TaskScore> of_all{};

  void add(const EvaluationPoint& point, const std::string& task) {
    auto made = hooks.known ? hooks.known(point, task) : std::nullopt;
    if (!made) made = make(point, task);
    if (!made) return;
    if (!point.own_rows()) of_all.emplace(alike(server, state, point, task), *made);
    scores.push_back(std::move(*made));
  }

  /// Computes a score, or returns nothing if it is missing.
  std::optional<scoring::TaskScore> make(const EvaluationPoint& point, const std::string& task) {
    const auto same = point.own_rows() ? of_all.end() : of_all.find(alike(server, state, point, task));
    auto scored = same != of_all.end() ? std::optional(Scored{same->second, {}}) : ask(point, task);
    if (!scored) return std::nullopt;
    scored->score.client = point.client;
    if (hooks.on_score) hooks.on_score(*scored);
    return scored->score;
  }

  std::optional<Scored> ask(const EvaluationPoint& point, const std::string& task) {
    LostCallback on_lost;
    if (hooks.on_missing)
      on_lost = [&](int64_t client, const std::string& why) { hooks.on_missing(point, task, client, why); };
    return score(
        server, fabric, state, point,
        {{.task = task, .predictions = hooks.predictions}, hooks.on_progress, hooks.on_clients, std::move(on_lost)});
  }
};

/// Calls changes.on_left_out() for every task. The rows are prepared already.
void tell_left_out(const Experiment& e, const RunEvaluation& changes) {
  const auto& context = e.fabric.context;
  if (!changes.on_left_out) return;
  for (const auto& task : context.config.tasks_here()) {
    const auto rows = context.test_rows({.task = task, .limit = context.config->evaluate.limit});
    changes.on_left_out(rows->left_out(), rows->note());
  }
}

}  // namespace

OrderedJson evaluation_progress(const std::string& task, double budget, int64_t done, int64_t rows) {
  return {{"phase", "evaluate"}, {"task", task}, {"budget", budget}, {"done", done}, {"rows", rows}};
}

std::vector<std::string> client_tasks(const Server& server) {
  const auto& rows = server.config.rows();
  if (rows.files.clients.empty()) return {};
  auto tasks = server.tasks;
  std::erase_if(tasks, [&](const auto& task) { return data::find_task(task, rows).family != "files"; });
  return tasks;
}

std::vector<EvaluationPoint> client_points(const Server& server, int64_t rounds) {
  std::vector<EvaluationPoint> points;
  if (!server.config->evaluate.per_client) return points;
  const auto modes = server.rank_eval_modes();
  for (const auto& client : server.clients) {
    if (!client.is_scored_after(rounds)) continue;
    for (const auto& mode : modes)
      for (const auto rows : {scoring::RowsOf::kOwn, scoring::RowsOf::kAll}) {
        if (rows == scoring::RowsOf::kOwn && !server.has_test_rows(client.id)) continue;
        points.push_back({.budget = client.budget,
                          .rank_eval_mode = mode,
                          .client = scoring::ClientOfScore{client.id, server.config->clients.name(client.id), rows}});
      }
  }
  return points;
}

std::vector<EvaluationPoint> evaluation_points(const Server& server, const methods::ServerState& state) {
  const auto& evaluate = server.config->evaluate;
  const auto modes = server.rank_eval_modes();
  std::vector<EvaluationPoint> points;
  for (const double budget : evaluate.budgets)
    for (const auto& mode : modes) {
      points.push_back({budget, mode});
      for (const auto by : served_elsewhere(server, state, points.back())) points.push_back({budget, mode, by});
    }
  return points;
}

void check_evaluation(const Experiment& e) {
  const auto& context = e.fabric.context;
  const auto& config = context.config;
  const auto check = [&](const std::string& task, std::optional<int64_t> own_of) {
    const auto rows = context.test_rows({.task = task, .own_of = own_of, .limit = config->evaluate.limit});
    scoring::check_task(*context.model, *rows, context.evaluation());
  };
  for (const auto& task : config.tasks_here()) check(task, std::nullopt);
  const bool own_rows = config->evaluate.per_client && !config->clients.rows_elsewhere();
  for (int64_t id = 0; own_rows && id < config->clients.count; ++id)
    for (const auto& task : config.plan(id).tests() ? client_tasks(e.server) : std::vector<std::string>())
      in_context(config->clients.who(id), [&] { check(task, id); });
}

std::optional<Scored> score(const Server& server, Fabric& fabric, const methods::ServerState& state,
                            const EvaluationPoint& point, const ScoreRequest& request) {
  const std::vector<methods::ClientProfile> evaluator{server.evaluator(state, point)};
  std::optional<Scored> scored;
  fabric.exchange(
      evaluator,
      {.task_of = [&](const methods::ClientProfile&) { return server.scoring_task(state, point, request.ask); },
       .on_reply = [&](Reply reply) { scored = report_of<Scored>(reply); },
       .on_progress =
           [&](const ClientProgress& done) {
             if (!done.task.empty() && request.on_progress)
               request.on_progress(done.task, done.budget, done.rows_done, done.rows);
             if (done.task.empty() && request.on_clients)
               request.on_clients(request.ask.task, point.budget, done.clients_done, done.clients);
           },
       .full_sync = [&] { return server.full_sync(state); },
       .on_lost = request.on_lost});
  return scored;
}

std::vector<scoring::TaskScore> evaluate_state(const Server& server, Fabric& fabric, const methods::ServerState& state,
                                               const EvaluationHooks& hooks) {
  Evaluation evaluation{server, fabric, state, hooks};
  for (const auto& point : evaluation_points(server, state))
    for (const auto& task : server.tasks) evaluation.add(point, task);
  const auto of_clients = client_tasks(server);
  for (const auto& point : client_points(server, state.round))
    for (const auto& task : of_clients) evaluation.add(point, task);
  return std::move(evaluation.scores);
}

methods::ServerState state_at(Experiment& e, CommittedRound committed) {
  if (committed.commit.round == 0) return before_first_round(e.server, e.fabric).state;
  check_state(committed.snapshot.state, e.server.sites, (committed.folder / "state.safetensors").string());
  restore_clients(e.server, e.fabric, committed.snapshot);
  return std::move(committed.snapshot.state);
}

std::vector<scoring::TaskScore> evaluate_run(const fs::path& folder, const RunEvaluation& changes,
                                             const EvaluationProgress& on_progress, const ScoreCallback& on_score) {
  const auto config = changed(config_with_base(folder, changes.base), changes);
  auto e = make_experiment(config, Purpose::kEvaluate, [&](const Experiment& made) {
    check_evaluation(made);
    tell_left_out(made, changes);
    warn_of_training_on(made.server.config, folder);
    const auto inputs = input_files(made.server.config, made.server.model_folder, {});
    for (const auto& file : changed_among(read_manifest(folder), inputs))
      log::warning("[evaluate] ", file.string(), " has changed since the run was made: the scores are of other rows");
    if (changes.on_inputs) changes.on_inputs(joined(files_of_run(folder), inputs));
  });
  auto committed = changes.best ? read_best_state(folder) : Checkpoint(folder / "checkpoint").read();
  const auto of_round = committed.commit.round > 0 ? committed.folder : folder / "checkpoint";
  const auto commit = read_file(of_round / "commit.json");
  const auto state = state_at(e, std::move(committed));
  if (!changes.journal.empty()) keep_answers(e, commit, changes.journal);
  return evaluate_state(e.server, e.fabric, state,
                        {.on_progress = on_progress, .on_score = on_score, .predictions = changes.predictions});
}

}  // namespace evenkeel::fed
