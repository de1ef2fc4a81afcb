#include "fed/run/run_at_budget.h"

#include <algorithm>

#include "base/plain/files.h"
#include "fed/run/best_round.h"
#include "fed/run/make_experiment.h"
#include "fed/run/stored_config.h"

namespace evenkeel::fed {
namespace {

RunConfig config_at(const fs::path& folder, const RunAtBudget::Options& options) {
  return config_with_base(folder, options.base).with([&](ExperimentConfig& values) {
    values.evaluate.budgets = {options.budget};
    values.evaluate.bert_score = {};
    if (options.adjust) options.adjust(values);
  });
}

EvaluationPoint point_at(const Server& server, const RunAtBudget::Options& options) {
  const auto& method = server.config->method;
  const auto modes = server.rank_eval_modes();
  EK_CHECK(!modes.empty(), kConfig,
           "the run's evaluate.rank_eval_modes say nothing of this model: a dense one has mode a alone");
  const auto& wanted = options.rank_eval_mode.empty() ? modes.at(0) : options.rank_eval_mode;
  EK_CHECK(std::find(modes.begin(), modes.end(), wanted) != modes.end(), kConfig, "--rank-eval-mode is ", wanted,
           ", but the run of method ", method.name, " has ",
           modes[0].empty() ? "none: it is for rank methods" : join(modes));
  return {.budget = options.budget, .rank_eval_mode = wanted};
}

}  // namespace

RunAtBudget::RunAtBudget(const fs::path& folder, const Options& options)
    : experiment_(make_experiment(config_at(folder, options), Purpose::kEvaluate)) {
  const auto state =
      state_at(experiment_, options.best ? read_best_state(folder) : Checkpoint(folder / "checkpoint").read());
  const auto task = experiment_.server.scoring_task(state, point_at(experiment_.server, options), {});
  setup_ = Client(experiment_.fabric.context, {}).prepare(task);
}

}  // namespace evenkeel::fed
