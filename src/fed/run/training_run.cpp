#include "fed/run/training_run.h"

#include <limits>
#include <memory>
#include <utility>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/system/device.h"
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
#include "fed/run/new_run_folder.h"
#include "fed/run/recorded_evaluation.h"
#include "fed/run/run_messages.h"
#include "fed/run/state_evaluation.h"
#include "fed/store/manifest.h"

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

Snapshot advance(const Course& run, const Snapshot& now, RunProgress& progress) {
  log_left_out(run.server, now.state.round);
  auto result = play_round(run, now, progress);
  run.folder.commit(result.next, result.record, run.server);
  run.fabric.remember(result.next.memories);
  run.fabric.share(result.next.state);
  run.tensorboard.add(result.record);
  report_round(result.record, run.server.config->train.rounds);
  return std::move(result.next);
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
  report_beginning(server, folder.path(), privacy, now.state.round);
  RunProgress progress(server, now.state.round, stop);
  BestRoundKeeper best(server, folder);
  best.update(now.state);
  for (bool spent = false;;) {
    bool done = spent || now.state.round >= config->train.rounds || is_spent(run, now.state.round);
    if (done) folder.finish(now.state.round);
    std::vector<scoring::TaskScore> scores;
    if (done || config->evaluates_after(now.state.round)) {
      scores = evaluate_round({server, fabric, folder, tensorboard, stop}, now.state);
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
  auto lock = prepare_folder(folder);
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
    if (is_new) abandon_folder(folder, std::move(lock));
    throw;
  }
}

Run resume_run(const RunRequest& request, std::optional<int64_t> from_round, const RunHooks& hooks) {
  const fs::path path = request.out.empty() ? request.config().folder() : fs::path(request.out);
  if (nothing_began(path)) {
    EK_CHECK(request.base.empty(), kConfig, "--base is ", request.base, ", but ", path.string(),
             " holds no run yet, whose base could have moved");
    log::warning("[train] ", path.string(), " holds no run yet: this one begins");
    return begin_run(request, hooks);
  }
  auto log = std::make_unique<log::File>();
  auto folder = RunFolder::open(path, from_round);
  const auto begun = begun_request(path);
  const bool other_arithmetic = tells_arithmetic(request, begun.settings, folder.config()->model);
  folder.changes().take(request, [&](const RunConfig& now) {
    return now.with([&](ExperimentConfig& values) {
      if (other_arithmetic) take_arithmetic(folder.config()->model, values.model);
    });
  });
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
