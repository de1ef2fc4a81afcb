// Measures what hostile clients do to a run, by rule of aggregation: two of ten clients send their update times a
// negative factor, or numbers of their own. Prints the part "robust" of a record in bench/records as JSON: per attack
// and rule the accuracy (share of rows) and the log-likelihood (nats per row) at budget 1 after the last round, by
// seed.
//   hostile_clients configs/demo.toml --seeds 1 2 3 > robust.json
// Runs are simulated in this process, one after the other, with the settings of kSettings. "mean, bounded" is the mean
// with clients.update_ratio, as evenkeel serve has it by default; the other rules run without that bound.
#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <set>
#include <span>

#include "base/plain/json.h"
#include "base/testing.h"
#include "fed/round/testing.h"
#include "fed/run/training_run.h"
#include "fed/store/run_request.h"

namespace evenkeel {
namespace {

const std::vector<std::string> kSettings = {
    "method.name=fedit",       "clients.count=10",    "clients.budgets={ values = [0.25, 0.5, 1.0] }",
    "data.limit=400",          "train.rounds=3",      "train.optimizer.lr=2e-3",
    "evaluate.budgets=[1.0]",  "evaluate.limit=12",   "threads=1",
    "aggregation.byzantine=2", "aggregation.trim=0.2"};
const std::set<int64_t> kHostile = {3, 6};

struct Attack {
  std::string name;
  testing::Poison poison;
};
const std::vector<Attack> kAttacks = {
    {"none", {}}, {"update times -30", testing::scaled(-30)}, {"update times -8", testing::scaled(-8)}};

struct Rule {
  std::string name;
  std::vector<std::string> settings;
};
const std::vector<Rule> kRules = {{"mean", {}},
                                  {"mean, bounded", {"clients.bound_simulated=true"}},
                                  {"trimmed_mean", {"aggregation.rule=trimmed_mean"}},
                                  {"median", {"aggregation.rule=median"}},
                                  {"clipped_mean", {"aggregation.rule=clipped_mean"}},
                                  {"krum", {"aggregation.rule=krum"}}};

/// Runs one federation. \return accuracy and log-likelihood, means over the tasks; nothing if the run failed
std::optional<std::pair<double, double>> scores_of(const std::string& config, const Attack& attack, const Rule& rule,
                                                   int64_t seed) {
  const testing::TemporaryFolder folder;
  fed::RunRequest request{.file = config, .settings = kSettings, .out = (folder.path() / "run").string()};
  request.settings.push_back(concat("seed=", seed));
  request.settings.insert(request.settings.end(), rule.settings.begin(), rule.settings.end());
  try {
    auto run = fed::begin_run(request);
    testing::PoisonedFabric fabric(run.experiment.fabric, run.experiment.server.sites,
                                   attack.poison ? kHostile : std::set<int64_t>{}, attack.poison);
    double accuracy = 0, likelihood = 0;
    const auto scores = fed::complete_run(run.experiment.server, fabric, run.folder);
    for (const auto& score : scores) {
      accuracy += score.accuracy / static_cast<double>(scores.size());
      likelihood += score.log_likelihood.value_or(0) / static_cast<double>(scores.size());
    }
    return std::pair(accuracy, likelihood);
  } catch (const Error& error) {
    std::cerr << attack.name << ", " << rule.name << ", seed " << seed << ": " << error.what() << "\n";
    return std::nullopt;
  }
}

OrderedJson measured(const std::string& config, const Attack& attack, const Rule& rule,
                     std::span<const int64_t> seeds) {
  OrderedJson row{{"attack", attack.name}, {"rule", rule.name}};
  for (const int64_t seed : seeds) {
    const auto scores = scores_of(config, attack, rule, seed);
    row["accuracy"].push_back(scores ? OrderedJson(scores->first) : OrderedJson());
    row["log_likelihood"].push_back(scores ? OrderedJson(scores->second) : OrderedJson());
  }
  std::cerr << row.dump() << "\n";
  return row;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  using namespace evenkeel;
  CLI::App app("Accuracy of runs with hostile clients, by rule of aggregation");
  std::string config;
  std::vector<int64_t> seeds{1, 2, 3};
  app.add_option("config", config)->required();
  app.add_option("--seeds", seeds);
  CLI11_PARSE(app, argc, argv);
  OrderedJson rows = OrderedJson::array();
  for (const auto& attack : kAttacks)
    for (const auto& rule : kRules) rows.push_back(measured(config, attack, rule, seeds));
  std::cout << OrderedJson{{"settings", kSettings}, {"hostile", kHostile}, {"seeds", seeds}, {"rows", rows}}.dump(1)
            << "\n";
}
