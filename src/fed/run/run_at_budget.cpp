#include "fed/run/run_at_budget.h"

#include <algorithm>

#include "base/plain/files.h"
#include "fed/run/make_experiment.h"
#include "fed/run/run_folder.h"

namespace evenkeel {
namespace {

ExperimentConfig config_at(const fs::path& folder, const RunAtBudget::Options& options) {
  auto config = run_config(folder);
  config.evaluate.budgets = {options.budget};
  config.evaluate.bert_score = {};
  if (options.adjust) options.adjust(config);
  return config;
}

EvaluationPoint point_at(const Server& server, const RunAtBudget::Options& options) {
  const auto& method = server.config.method;
  const auto readings = method.entry().readings(server.config.evaluate.rank_eval_modes, server.model.num_experts > 0);
  EK_CHECK(!readings.empty(), kConfig,
           "the run's [evaluate] readings say nothing of this model: a dense one has reading a alone");
  const auto& wanted = options.reading.empty() ? readings.at(0) : options.reading;
  EK_CHECK(std::find(readings.begin(), readings.end(), wanted) != readings.end(), kConfig, "--reading is ", wanted,
           ", but the run of method ", method.name, " has ",
           readings[0].empty() ? "none: it is for rank methods" : join(readings));
  return {.budget = options.budget, .reading = wanted};
}

}  // namespace

RunAtBudget::RunAtBudget(const fs::path& folder, const Options& options)
    : experiment_(make_experiment(config_at(folder, options), Purpose::kEvaluate)) {
  const auto state = last_state(experiment_, Checkpoint(folder / "checkpoint"));
  const auto task = experiment_.server.scoring_task(state, point_at(experiment_.server, options), {});
  setup_ = Client(experiment_.fabric.place, {}).prepare(task);
}

}  // namespace evenkeel
