#include "fed/run/best_round.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "fed/run/run_folder.h"
#include "fed/run/stored_records.h"
#include "fed/store/run_files.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kBestFile = run_file("best.json"), kBestAdapter = run_file("best");

fs::path best_states(const fs::path& folder) { return folder / run_file("checkpoint") / "best"; }

/// One score that the value of a round is made of.
struct Selected {
  std::string task;
  double budget;
  std::string mode;

  bool is(const scoring::TaskScore& score) const {
    return score.served_by == scoring::ServedBy::kRun && !score.client && score.is_complete() && score.task == task &&
           score.budget == budget && score.rank_eval_mode == mode;
  }
};

std::vector<std::string> compared_tasks(const BestSection& best, const std::vector<std::string>& tasks) {
  auto compared = tasks;
  std::erase_if(compared, [&](const std::string& task) {
    return !best.tasks.empty() && std::find(best.tasks.begin(), best.tasks.end(), task) == best.tasks.end();
  });
  return compared;
}

std::vector<Selected> selected_scores(const EvaluateSection& evaluate, const std::vector<std::string>& tasks,
                                      const std::vector<std::string>& modes) {
  std::vector<Selected> all;
  for (const auto& task : compared_tasks(evaluate.best, tasks))
    for (const double budget : evaluate.budgets)
      for (const auto& mode : modes)
        if (evaluate.best.budget == 0 || budget == evaluate.best.budget) all.push_back({task, budget, mode});
  return all;
}

/// Returns the mean over `selected` of the scores of a round; nothing if one of them is missing.
std::optional<double> value_of(std::span<const scoring::TaskScore* const> scores, std::span<const Selected> selected,
                               const scoring::Measure& measure) {
  double sum = 0;
  for (const auto& wanted : selected) {
    std::optional<double> value;
    for (const auto* score : scores)
      if (wanted.is(*score)) value = measure.of(*score);
    if (!value || !std::isfinite(*value)) return std::nullopt;
    sum += *value;
  }
  return selected.empty() ? std::nullopt : std::optional(sum / static_cast<double>(selected.size()));
}

/// Returns the earliest of the best values. REQUIRES one value or more
RoundValue best_of(const scoring::Measure& measure, std::span<const RoundValue> values) {
  return *std::max_element(values.begin(), values.end(),
                           [&](const auto& x, const auto& y) { return measure.is_better(y.value, x.value); });
}

std::vector<EvaluationRecord> evaluations_in(const RunFolder& folder) {
  std::vector<EvaluationRecord> evaluations;
  for (const auto& line : folder.evaluations()) evaluations.push_back(record::read<EvaluationRecord>(line.view()));
  return evaluations;
}

/// Returns the best round of `values`, and that of the values before round `now`, to which a run can go back.
std::vector<int64_t> needed_rounds(const scoring::Measure& measure, std::span<const RoundValue> values, int64_t now) {
  std::vector<int64_t> needed = {best_of(measure, values).round};
  const auto before = values.first(values.size() - (values.back().round == now ? 1 : 0));
  if (!before.empty()) needed.push_back(best_of(measure, before).round);
  return needed;
}

std::string stop_line(const BestRound& best) {
  const auto& stop = best.stopped.value();
  return concat("the run ends after round ", stop.round, " of ", stop.rounds,
                " (train.stop): ", config::name_of(best.measure), " has not improved by more than ", stop.min_delta,
                " in ", stop.patience, stop.patience == 1 ? " evaluation" : " evaluations",
                "; it was best after round ", best.round, ", ", best.value);
}

}  // namespace

std::vector<RoundValue> round_values(const RunConfig& config, const std::vector<std::string>& tasks,
                                     const std::vector<std::string>& modes,
                                     std::span<const EvaluationRecord> evaluations) {
  std::map<int64_t, std::vector<const scoring::TaskScore*>> rounds;
  for (const auto& made : evaluations)
    if (made.round > 0) rounds[made.round].push_back(&made.score);
  const auto selected = selected_scores(config->evaluate, tasks, modes);
  const auto& measure = scoring::measure_of(config->evaluate.best.measure);
  std::vector<RoundValue> values;
  for (const auto& [round, scores] : rounds)
    if (const auto value = value_of(scores, selected, measure)) values.push_back({round, *value});
  return values;
}

bool has_stalled(const StopSection& stop, const scoring::Measure& measure, std::span<const RoundValue> values) {
  if (stop.patience == 0 || values.empty()) return false;
  double gained = values.front().value;
  int64_t without_gain = 0;
  for (const auto& [round, value] : values.subspan(1)) {
    const bool gain = measure.higher_is_better ? value > gained + stop.min_delta : value < gained - stop.min_delta;
    if (gain) gained = value;
    without_gain = gain ? 0 : without_gain + 1;
  }
  return without_gain >= stop.patience;
}

std::optional<BestRound> read_best(const fs::path& folder) {
  const auto file = folder / kBestFile;
  if (!path_exists(file)) return std::nullopt;
  const Json json = read_sealed(file);
  return record::read<BestRound>({json, file.string(), kCheckpoint});
}

int64_t total_rounds(const fs::path& folder, int64_t rounds) {
  if (path_exists(folder / run_file("privacy"))) {
    const auto lines = read_rounds(folder).lines;
    if (lines.empty()) return rounds;
    const auto last = record::read<RoundRecord>(lines.back().view());
    if (last.privacy && last.privacy->ended_by) return std::min(rounds, last.round);
  }
  const auto best = read_best(folder);
  return best && best->stopped ? std::min(rounds, best->stopped->round) : rounds;
}

CommittedRound read_best_state(const fs::path& folder) {
  const auto best = read_best(folder);
  EK_CHECK(best && best->kept, kIo, folder.string(),
           " keeps no best round: --best is for runs with evaluate.keep_best = true, after their first evaluation");
  return Checkpoint(best_states(folder)).load_kept(best->round);
}

std::optional<std::string> BestRoundKeeper::update(const methods::ServerState& now) {
  const auto& config = server_.config;
  if (!config->seeks_best()) return std::nullopt;
  const auto values = round_values(config, server_.tasks, server_.rank_eval_modes(), evaluations_in(folder_));
  if (values.empty()) {
    forget();
    return std::nullopt;
  }
  auto best = found(values, now.round);
  if (config->evaluate.keep_best) best.kept = keep(best.round, now);
  write_sealed(folder_.path() / kBestFile, record::write(best), 1);
  if (best.kept)
    Checkpoint(best_states(folder_.path()))
        .keep_only(needed_rounds(scoring::measure_of(best.measure), values, now.round));
  return best.stopped ? std::optional(stop_line(best)) : std::nullopt;
}

BestRound BestRoundKeeper::found(const std::vector<RoundValue>& values, int64_t round) const {
  const auto& [train, evaluate] = std::tie(server_.config->train, server_.config->evaluate);
  const auto& measure = scoring::measure_of(evaluate.best.measure);
  const auto top = best_of(measure, values);
  BestRound best{.measure = evaluate.best.measure,
                 .budget = evaluate.best.budget,
                 .tasks = compared_tasks(evaluate.best, server_.tasks),
                 .round = top.round,
                 .value = top.value,
                 .evaluated = values,
                 .stopped = {}};
  if (round < train.rounds && values.back().round == round && has_stalled(train.stop, measure, values))
    best.stopped = {round, train.rounds, train.stop.patience, train.stop.min_delta};
  return best;
}

/// Stores the state of round `best`, if it is the last committed one, and writes best/.
/// \return false if the state is lost
bool BestRoundKeeper::keep(int64_t best, const methods::ServerState& now) {
  const Checkpoint states(best_states(folder_.path()));
  try {
    if (best == now.round && written_ != best) states.commit({.state = now}, {});
    if (written_ != best) folder_.save_adapter(states.load_kept(best).snapshot.state, server_, kBestAdapter);
  } catch (const Error& error) {
    if (best == now.round) throw;
    log::warning("[train] the adapter of round ", best, ", the best so far, is not kept: ", error.what());
    remove_path(folder_.path() / kBestAdapter);
    return false;
  }
  written_ = best;
  return true;
}

void BestRoundKeeper::forget() const {
  for (const auto& path : {folder_.path() / kBestFile, folder_.path() / kBestAdapter, best_states(folder_.path())})
    remove_path(path);
}

}  // namespace evenkeel::fed
