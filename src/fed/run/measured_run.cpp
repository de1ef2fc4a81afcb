#include "fed/run/measured_run.h"

#include <algorithm>

#include "base/plain/text.h"
#include "data/left_out_rows.h"
#include "fed/config/arithmetic.h"
#include "fed/exchange/client.h"
#include "fed/run/make_experiment.h"
#include "fed/run/state_evaluation.h"
#include "fed/run/stored_config.h"

namespace evenkeel::fed {
namespace {

std::vector<data::Example> held_out_rows(const Experiment& e, int64_t limit) {
  std::vector<data::Example> rows;
  for (const auto& name : e.server.config->evaluate.tasks) {
    const auto from = e.server.config.rows(limit);
    const auto set = data::test_rows(data::find_task(name, from), from);
    auto tokenized = data::tokenize_rows(set.rows, e.fabric.context.tokenizer,
                                         e.server.config->data.tokenize_options(e.server.model.end_of_text));
    data::warn_once("[data] ", tokenized.note);
    std::move(tokenized.examples.begin(), tokenized.examples.end(), std::back_inserter(rows));
  }
  return rows;
}

/// \throws kConfig when no evaluated task is read from a folder
void set_data_folder(const std::string& folder, ExperimentConfig& config) {
  const auto& tasks = config.evaluate.tasks;
  const auto from = config.rows();
  EK_CHECK(std::any_of(tasks.begin(), tasks.end(),
                       [&](const std::string& task) {
                         return data::find_task_family(data::find_task(task, from).family).in_folder;
                       }),
           kConfig, "--data is ", shown(folder), ", which no evaluated task reads: ", join(tasks));
  config.data.path = folder;
}

}  // namespace

MeasuredRun open_measured_run(const MeasuredRunOptions& options) {
  const auto config = config_with_base(options.folder, options.base).with([&](ExperimentConfig& values) {
    if (!options.data.empty()) set_data_folder(options.data, values);
    compute_on(values.model, options.device);
  });
  auto e = make_experiment(config, Purpose::kEvaluate);
  auto state = state_at(e, Checkpoint(options.folder / "checkpoint").read());
  auto rows = held_out_rows(e, options.limit);
  return {std::move(e), std::move(state), std::move(rows)};
}

methods::LocalSetup setup_at(const Experiment& e, const methods::ServerState& state, double budget) {
  return Client(e.fabric.context, {}).prepare(e.server.scoring_task(state, {.budget = budget}, {}));
}

}  // namespace evenkeel::fed
