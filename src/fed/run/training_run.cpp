#include "fed/run/training_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/number_text.h"
#include "base/system/device.h"
#include "base/system/events.h"
#include "base/system/machine.h"
#include "fed/config/arithmetic.h"
#include "fed/config/config_paths.h"
#include "fed/round/adapter_readers.h"
#include "fed/round/client_privacy.h"
#include "fed/round/round.h"
#include "fed/round/starting_adapter.h"
#include "fed/run/best_round.h"
#include "fed/run/contamination.h"
#include "fed/run/event_log.h"
#include "fed/run/make_experiment.h"
#include "fed/run/state_evaluation.h"
#include "fed/store/changeable_keys.h"
#include "fed/store/manifest.h"
#include "privacy/signal.h"

namespace evenkeel::fed {
namespace {

constexpr double kFlushSeconds = 0.5;  // of training that a machine without power may lose

/// The arguments of complete_run().
struct Course {
  const Server& server;
  Fabric& fabric;
  RunFolder& folder;
  const StopRequest& stop;
  EventLog& tensorboard;
  ClientPrivacy* privacy;  // null unless the run protects its clients
};

Snapshot first_snapshot(const Course& run) {
  auto opened = run.folder.take_snapshot();
  if (opened) {
    run.folder.save_adapter(opened->state, run.server);
    restore_clients(run.server, run.fabric, *opened);
  }
  auto snapshot = opened ? std::move(*opened) : before_first_round(run.server, run.fabric);
  run.server.dry_run(snapshot.state);
  return snapshot;
}

/// Checks all inputs of the run before the weights are loaded.
void check_beginning(const Experiment& e) {
  check_start(e.server);
  warn_of_readers(e.server, "[train] adapter/ of this run");
  check_evaluation(e);
  warn_of_contamination(e);
}

Experiment experiment_of(const RunConfig& config, const BegunRequest& begun, const RunHooks& hooks) {
  if (hooks.on_config) hooks.on_config(config, begun);
  auto experiment = make_experiment(config, Purpose::kTrain, check_beginning);
  if (hooks.on_experiment) hooks.on_experiment(experiment);
  return experiment;
}

std::vector<scoring::TaskScore> known_scores(const RunFolder& folder, int64_t round) {
  std::vector<scoring::TaskScore> scores;
  for (const auto& line : folder.evaluations())
    if (line.view().at("round").integer() == round) scores.push_back(record::read<EvaluationRecord>(line.view()).score);
  return scores;
}

std::optional<scoring::TaskScore> known_score(std::span<const scoring::TaskScore> scores, const EvaluationPoint& point,
                                              const std::string& task) {
  for (const auto& score : scores)
    if (score.is_complete() && score.budget == point.budget && score.rank_eval_mode == point.rank_eval_mode &&
        score.served_by == point.served_by && score.client == point.client && score.task == task)
      return score;
  return std::nullopt;
}

class EvaluationLine {
 public:
  explicit EvaluationLine(const StopRequest& stop) : stop_(stop) {}
  void show_rows(const std::string& task, double budget, int64_t done, int64_t rows) {
    show(task, concat(task, " at budget ", budget, ", ", done, "/", rows, " rows"),
         evaluation_progress(task, budget, done, rows));
  }
  void show_clients(const std::string& task, double budget, int64_t done, int64_t clients) {
    show(task, concat(task, " at budget ", budget, ", scores of ", done, "/", clients, " clients"),
         {{"phase", "evaluate"}, {"task", task}, {"budget", budget}, {"clients_done", done}, {"clients", clients}});
  }

 private:
  void show(const std::string& task, const std::string& line, OrderedJson event) {
    line_.update(line);
    if (events::take_progress_turn()) events::write("progress", std::move(event));
    if (stop_ && stop_()) throw Interrupted(concat("stopped while evaluating ", task));
  }

  const StopRequest& stop_;
  log::Progress line_{"evaluate"};
};

void note_missing(const Course& run, MissingScore missing) {
  missing.name = run.server.config->clients.name(missing.client);
  log::warning("[evaluate] after round ", missing.round, ": no score of ", missing.task, " at budget ", missing.budget,
               " by ", run.server.config->clients.who(missing.client), ": ", missing.reason);
  run.folder.add_missing(missing);
  events::write("missing_score", record::write(missing));
}

ItemRecord item_record(int64_t round, const scoring::TaskScore& score, const scoring::ItemScores& items) {
  return {round, score.task, score.budget, score.rank_eval_mode, score.served_by, score.client, items};
}

/// Removes the items of scores that will be computed again.
void keep_items_of(const RunFolder& folder, int64_t round, std::span<const scoring::TaskScore> known) {
  folder.keep_items(round, [&](const ItemRecord& items) {
    return std::any_of(known.begin(), known.end(), [&](const scoring::TaskScore& score) {
      return score.is_complete() && items.same_score(item_record(round, score, {}));
    });
  });
}

/// Scores `state` on all tasks at all budgets. Scores that evaluations.jsonl already holds are not computed again.
std::vector<scoring::TaskScore> evaluate_round(const Course& run, const methods::ServerState& state) {
  const auto& server = run.server;
  const auto known = known_scores(run.folder, state.round);
  keep_items_of(run.folder, state.round, known);
  EvaluationLine progress(run.stop);
  auto scores = evaluate_state(
      server, run.fabric, state,
      {.known = [&](const EvaluationPoint& point, const std::string& task) { return known_score(known, point, task); },
       .on_progress = [&](const auto&... done) { progress.show_rows(done...); },
       .on_clients = [&](const auto&... done) { progress.show_clients(done...); },
       .on_score =
           [&](const Scored& scored) {
             if (scored.items) run.folder.add_items(item_record(state.round, scored.score, *scored.items));
             const EvaluationRecord record{state.round, server.config->method.name, scored.score};
             run.folder.add_evaluation(record);
             run.tensorboard.add(record);
             events::write("evaluation", record::write(record));
           },
       .on_missing =
           [&](const EvaluationPoint& point, const std::string& task, int64_t client, const std::string& why) {
             const auto rows = point.own_rows() ? scoring::RowsOf::kOwn : scoring::RowsOf::kAll;
             note_missing(run, {state.round, task, point.budget, point.rank_eval_mode, rows, client, {}, why});
           }});
  run.folder.answers()->finish();
  return scores;
}

void log_beginning(const Server& server, int64_t rounds_done) {
  double rows = 0;
  for (const auto& client : server.clients) rows += client.examples;
  const auto& privacy = server.config->privacy;
  const bool hides_rows = privacy.protects_clients() && !privacy.public_sizes;
  log::info("[train] ", server.config->method.name, " on ", server.model_folder.string(), ": ", server.clients.size(),
            " clients, ", hides_rows ? std::string() : concat(rows, " rows, "), "rounds ", rounds_done + 1, " to ",
            server.config->train.rounds);
}

/// Writes the event "run": the run, and its remaining rounds.
void write_run_event(const Course& run, int64_t rounds_done) {
  const auto& server = run.server;
  auto modes = server.rank_eval_modes();
  std::erase(modes, "");
  events::write("run", {{"run", run.folder.path().string()},
                        {"name", server.config->name},
                        {"method", server.config->method.name},
                        {"model", server.model_folder.string()},
                        {"seed", server.config->seed},
                        {"rank_eval_modes", modes},
                        {"clients", server.clients.size()},
                        {"rounds", server.config->train.rounds},
                        {"rounds_done", rounds_done}});
}

/// Writes the event "round": a line of rounds.jsonl without its lists.
void write_round_event(const RoundRecord& record, int64_t rounds) {
  events::write("round", {{"round", record.round},
                          {"rounds", rounds},
                          {"loss", record.loss ? OrderedJson(*record.loss) : OrderedJson(nullptr)},
                          {"participants", record.participants},
                          {"lost", record.lost ? record.lost->size() : 0},
                          {"steps", record.steps},
                          {"tokens", record.tokens},
                          {"bytes_up", record.bytes_up},
                          {"bytes_down", record.bytes_down},
                          {"experts_per_token", record.experts_per_token},
                          {"seconds", record.seconds.round},
                          {"tokens_per_second", record.seconds.tokens_per_second}});
}

/// Says what the noise of a round cost, and how much of its sum was signal.
std::string client_privacy_line(int64_t round, const ClientPrivacyRecord& privacy) {
  return concat("[train] round ", round, ": private for clients",
                privacy.simulated ? " (simulated, protects nobody)" : "", ": epsilon ", fixed(privacy.epsilon, 3),
                privacy.budget ? concat(" of ", *privacy.budget) : std::string(), " at delta ", privacy.delta,
                ", changes ", privacy::beside_noise(privacy.signal));
}

/// Says what the private training of a round cost, and how much of it was signal; empty if none was private.
std::string privacy_line(const RoundRecord& record) {
  double epsilon = 0, delta = 0;
  std::optional<double> signal;
  size_t clients = 0;
  bool simulated = false;
  for (const auto& client : record.clients) {
    if (!client.privacy) continue;
    ++clients;
    simulated = simulated || client.privacy->simulated;
    epsilon = std::max(epsilon, client.privacy->epsilon), delta = std::max(delta, client.privacy->delta);
    if (const auto own = client.privacy->signal) signal = std::min(*own, signal.value_or(*own));
  }
  return clients == 0
             ? std::string()
             : concat("[train] round ", record.round, ": private for single rows in ", clients, " clients",
                      simulated ? " (simulated, protects nobody)" : "", ": epsilon up to ", fixed(epsilon, 3),
                      " at delta ", delta,
                      signal ? concat(", gradients at least ", privacy::beside_noise(*signal)) : std::string());
}

void log_round(const RoundRecord& record, int64_t rounds) {
  if (record.withheld)
    log::info("[train] round ", record.round, "/", rounds, ": done");
  else if (!record.loss)
    log::info("[train] round ", record.round, "/", rounds, ": done; no client tells its loss");
  else
    log::info("[train] round ", record.round, "/", rounds, ": loss ", *record.loss, ", ", record.tokens, " tokens, ",
              static_cast<int64_t>(record.seconds.tokens_per_second), " tokens/s");
  if (const auto line = privacy_line(record); !line.empty()) log::info(line);
  if (!record.privacy) return;
  log::info(client_privacy_line(record.round, *record.privacy));
  if (const double bound = record.privacy->signal_bound; record.round == 1 && bound < privacy::kMostlyNoise)
    log::warning("[train] the noise is ", compact(1 / bound), " times the largest possible change: expect no learning");
}

/// Warns if parallel clients use more threads than there are processors.
void warn_of_threads(const RunConfig& config) {
  const int64_t threads = config->threads * config->clients.parallel, processors = machine::processors();
  if (config->clients.parallel == 1 || threads <= processors) return;
  log::warning("[train] clients.parallel ", config->clients.parallel, " x threads ", config->threads, " = ", threads,
               " threads, this machine has ", processors,
               " processors: slower than with threads = ", std::max<int64_t>(1, processors / config->clients.parallel));
}

/// Returns the size of uploads that are written while the next client trains. On a GPU training needs one processor,
/// and a client's steps take seconds, so the largest upload would otherwise be a notable part of a round.
int64_t background_bytes(const RunConfig& config) {
  return names_gpu(config->model.device) ? std::numeric_limits<int64_t>::max() : RoundJournal::kBackgroundBytes;
}

/// Runs the round after `now`, and runs it again if the fabric recovers from an error. The journal keeps uploads that
/// had arrived.
RoundResult play_round(const Course& run, const Snapshot& now, RunProgress& progress) {
  for (;;) try {
      const auto& checkpoint = run.folder.checkpoint();
      RoundJournal journal(checkpoint.uploads(now.state.round + 1), run.fabric.may_ask_again() ? kFlushSeconds : 0,
                           checkpoint.uploads(now.state.round), background_bytes(run.server.config));
      return run_round(run.server, run.fabric, now, std::move(journal), progress, run.privacy);
    } catch (const Error& error) {
      if (!run.fabric.recover()) throw;
      log::warning("[train] round ", now.state.round + 1, " begins again: ", error.what());
    }
}

/// Logs which clients do not take part in the round after `rounds` and in later ones.
void log_left_out(const Server& server, int64_t rounds) {
  for (const auto& client : server.clients)
    if (client.end_round == rounds)
      log::info("[train] ", server.config->clients.who(client.id), " is left out from round ", rounds + 1,
                " on (until)");
}

Snapshot advance(const Course& run, const Snapshot& now, RunProgress& progress) {
  log_left_out(run.server, now.state.round);
  auto result = play_round(run, now, progress);
  run.folder.commit(result.next, result.record, run.server);
  run.fabric.remember(result.next.memories);
  run.fabric.share(result.next.state);
  run.tensorboard.add(result.record);
  log_round(result.record, run.server.config->train.rounds);
  write_round_event(result.record, run.server.config->train.rounds);
  return std::move(result.next);
}

/// Says what the run protects, and warns of what its account does not see.
void log_privacy(const Course& run, int64_t rounds_done) {
  log::info("[train] privacy: ", run.privacy->summary());
  if (rounds_done == 0 && run.server.config->privacy.continues.empty() && !run.server.config->lora.init.empty())
    log::warning("[train] lora.init: what the run of that adapter spent on the same clients is not in this account: ",
                 "privacy.continues names a run folder whose account goes on");
  const auto& config = *run.server.config;
  if (const double delta = config.privacy.delta; delta * static_cast<double>(config.clients.count) >= 1)
    log::warning("[train] privacy.delta is ", delta, " for ", config.clients.count,
                 " clients: below 1 / clients it excludes that one of them is shown whole");
}

/// Returns true if the budget does not allow the next round.
bool is_spent(const Course& run, int64_t rounds_done) {
  if (!run.privacy || run.privacy->allows(rounds_done)) return false;
  log::info("[train] the privacy budget ends the run after ", rounds_done, " of ", run.server.config->train.rounds,
            " rounds");
  return true;
}

/// Runs the next round. \return nothing when the budget does not allow to repeat it with other uploads
std::optional<Snapshot> advance_within_budget(const Course& run, const Snapshot& now, RunProgress& progress) {
  try {
    return advance(run, now, progress);
  } catch (const BudgetSpent& spent) {
    log::warning("[train] the privacy budget ends the run after ", now.state.round, " rounds: ", spent.what());
    return std::nullopt;
  }
}

/// Returns true if this command, and not the one that began the run, sets the arithmetic.
bool tells_arithmetic(const RunRequest& request, const std::vector<std::string>& begun_with, const ModelSection& run) {
  if (request.says("model.compute_dtype") || request.says("model.products")) return true;
  const auto asked = request.config(begun_with).model;
  return (request.says("model.device") && asked.device != run.device) ||
         (request.says("model.engine") && asked.engine != run.engine) ||
         (request.says("model.graphs") && asked.graphs != run.graphs) ||
         (request.says("model.cuda_kernels") && asked.cuda_kernels != run.cuda_kernels);
}

/// Returns the run's config with the arithmetic of `asked`, settled on this machine.
RunConfig with_arithmetic(const RunConfig& run, const ExperimentConfig& asked) {
  log::warning("[train] the run is computed as this command says (", join(kArithmeticKeys),
               "): other bits than those of a run that keeps its arithmetic");
  return run.with([&](ExperimentConfig& values) {
    take_arithmetic(asked.model, values.model);
    values.model.settle(machine_choices(values));
  });
}

/// Runs the remaining rounds and their evaluations. \return the scores of the last round
std::vector<scoring::TaskScore> play_run(const Course& run) {
  const auto& [server, fabric, folder, stop, tensorboard, privacy] = run;
  const auto& config = server.config;
  Snapshot now = first_snapshot(run);
  write_run_event(run, now.state.round);
  if (now.state.round < config->train.rounds) {
    log_beginning(server, now.state.round);
    warn_of_threads(config);
    if (privacy) log_privacy(run, now.state.round);
  }
  RunProgress progress(server, now.state.round, stop);
  BestRoundKeeper best(server, folder);
  best.update(now.state);
  for (bool spent = false;;) {
    bool done = spent || now.state.round >= config->train.rounds || is_spent(run, now.state.round);
    if (done) folder.finish(now.state.round);
    std::vector<scoring::TaskScore> scores;
    if (done || config->evaluates_after(now.state.round)) {
      scores = evaluate_round(run, now.state);
      const auto why = best.update(now.state);
      if (why) log::info("[train] ", *why);
      if (why && !std::exchange(done, true)) folder.finish(now.state.round);
    }
    if (done) return scores;
    auto next = advance_within_budget(run, now, progress);
    spent = !next.has_value();
    if (next) now = *std::move(next);
    trim_heap(now.state);
  }
}

}  // namespace

Run begin_run(const RunRequest& request, const RunHooks& hooks) {
  const auto asked = request.config();
  const fs::path folder = asked.folder();
  auto log = std::make_unique<log::File>();
  const bool is_new = !path_exists(folder) || path_exists(folder / run_file("rows"));
  auto lock = RunFolder::prepare(folder);
  try {
    find_device(asked.model.device, "model.device");  // a GPU that is not there is said at once
    models::load_shape(models::find_model_folder(asked.model.path), asked.model.dtype);  // and so is a wrong path
    const auto config = settle(with_inputs(asked), machine_choices(asked));
    auto experiment = experiment_of(config, {.config = asked}, hooks);
    auto run_folder =
        RunFolder::create(folder, std::move(lock), experiment.server, &experiment.fabric.shards, request, asked);
    run_folder.keep_log(std::move(log));
    experiment.fabric.context.answers = run_folder.answers();
    return {std::move(experiment), std::move(run_folder)};
  } catch (...) {
    if (is_new) RunFolder::abandon(folder, std::move(lock));
    throw;
  }
}

Run resume_run(const RunRequest& request, std::optional<int64_t> from_round, const RunHooks& hooks) {
  const fs::path path = request.out.empty() ? request.config().folder() : fs::path(request.out);
  if (RunFolder::nothing_began(path)) {
    EK_CHECK(request.base.empty(), kConfig, "--base is ", request.base, ", but ", path.string(),
             " holds no run yet, whose base could have moved");
    log::warning("[train] ", path.string(), " holds no run yet: this one begins");
    return begin_run(request, hooks);
  }
  auto log = std::make_unique<log::File>();
  auto folder = RunFolder::open(path, from_round);
  const auto begun = begun_request(path);
  if (const auto rounds = request.rounds(begun.settings)) folder.extend(*rounds);
  const bool other_arithmetic = tells_arithmetic(request, begun.settings, folder.config()->model);
  const auto as_run = [&](const RunConfig& now) {
    return now.with([&](ExperimentConfig& values) {
      if (other_arithmetic) take_arithmetic(folder.config()->model, values.model);
    });
  };
  take_changes(request, folder, as_run);
  folder.use_method(request.changed_method);
  folder.use_base(request.base);
  folder.check_files();
  const auto config =
      other_arithmetic ? with_arithmetic(folder.config(), request.config(begun.settings)) : folder.config();
  check_gpu(path, read_manifest(path), config->model.device);
  require_graphs(config->model);
  auto experiment = experiment_of(config, begun, hooks);
  folder.check(experiment.server, &experiment.fabric.shards);
  folder.settle();
  folder.keep_log(std::move(log));
  experiment.fabric.context.answers = folder.answers();
  return {std::move(experiment), std::move(folder)};
}

void take_changes(const RunRequest& request, RunFolder& folder, const SettledChange& as_run) {
  const auto begun = begun_request(folder.path());
  const auto changes = changes_of(request.config(begun.settings), begun.config, folder.config(), as_run);
  std::vector<std::string> refused;
  for (const auto& change : changes)
    if (const auto why = folder.why_fixed_key(change.key); !why.empty())
      refused.push_back(concat(lines_of(std::span(&change, 1))[0], why == kKept ? "" : concat(" (", why, ")")));
  EK_CHECK(refused.empty(), kConfig, "--resume goes on with the config of ", folder.path().string(), ": ",
           join(refused, "; "), "; a resumed run may change train.rounds by --set, what docs/operations.md lists, and ",
           "by --base FOLDER a base model that was moved");
  folder.change_keys(changes, request);
}

std::vector<scoring::TaskScore> complete_run(const Server& server, Fabric& fabric, RunFolder& folder,
                                             const StopRequest& stop) {
  try {
    EventLog tensorboard(folder.path(), server.config->report.tensorboard);
    std::optional<ClientPrivacy> privacy;
    if (server.config->privacy.protects_clients()) privacy.emplace(server, folder.path(), folder.opened_round());
    auto scores = play_run({server, fabric, folder, stop, tensorboard, privacy ? &*privacy : nullptr});
    folder.note(log::Level::kInfo, "[run] done");
    return scores;
  } catch (const Error& error) {
    folder.note(log::Level::kError, error.what());
    throw;
  } catch (const Interrupted& interrupted) {
    folder.note(log::Level::kInfo, concat("[run] ", interrupted.what()));
    throw;
  }
}

}  // namespace evenkeel::fed
