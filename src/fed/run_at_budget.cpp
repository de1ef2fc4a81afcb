#include "fed/run_at_budget.h"

#include <algorithm>

#include "fed/run_folder.h"

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
  const auto points = evaluation_points(server);
  if (options.reading.empty()) return points.at(0);
  const auto found =
      std::find_if(points.begin(), points.end(), [&](const auto& point) { return point.reading == options.reading; });
  EK_CHECK(found != points.end(), kConfig, "--reading is ", options.reading, ", which method ",
           server.config.method.name, " of the run has not, or [evaluate] readings leaves out");
  return *found;
}

}  // namespace

RunAtBudget::RunAtBudget(const fs::path& folder, const Options& options)
    : experiment_(make_experiment(config_at(folder, options), Purpose::kEvaluate)) {
  const auto state = last_state(experiment_, Checkpoint(folder / "checkpoint"));
  const auto task = experiment_.server.scoring_task(state, point_at(experiment_.server, options), {});
  setup_ = Client(experiment_.fabric.place, {}).prepare(task);
}

}  // namespace evenkeel
