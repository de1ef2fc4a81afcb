#include "records/run_records.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/os_error.h"
#include "fed/run/best_round.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/stored_config.h"
#include "fed/run/stored_records.h"
#include "fed/store/manifest.h"

namespace evenkeel::records {
namespace {

/// Returns what identifies a score: a later record with the same key replaces an earlier one.
auto key_of(const fed::EvaluationRecord& record) {
  const auto& score = record.score;
  const auto client = score.client.value_or(scoring::ClientOfScore{});
  return std::tuple(record.round, score.task, score.budget, score.rank_eval_mode, score.served_by,
                    score.client.has_value(), client.id, client.name, client.rows);
}

/// Places of records in a list by their keys.
using Places = std::map<decltype(key_of({})), size_t>;

void add(std::vector<fed::EvaluationRecord>& all, Places& places, fed::EvaluationRecord made) {
  const auto [known, is_new] = places.try_emplace(key_of(made), all.size());
  if (is_new)
    all.push_back(std::move(made));
  else
    all[known->second] = std::move(made);
}

std::string folder_name(const fs::path& folder) {
  std::error_code error;
  const auto path = fs::weakly_canonical(folder, error);
  EK_CHECK(!error, kIo, folder.string(), ": has no whole path: ", os_error_text(error.value()));
  return path.filename().string();
}

/// Returns the values of a config. Ranks that follow from the budgets and the method, which a settled config lists, are
/// left open.
fed::ExperimentConfig with_open_ranks(const fed::RunConfig& config) {
  auto values = *config;
  const bool follow = std::all_of(config.plans().begin(), config.plans().end(), [&](const fed::ClientPlan& plan) {
    return plan.rank == config->method.entry().rank(plan.budget, config->lora.rank);
  });
  if (!follow) return values;
  values.clients.ranks = {};
  for (auto& client : values.clients.client) client.rank.reset();
  return values;
}

void read_rounds_to_do(RunRecords& run, int64_t rounds) {
  run.total_rounds = fed::total_rounds(run.folder, rounds);
  run.stopped_early = run.total_rounds < rounds;
}

/// Reads a round. Its loss may be missing only if all of its clients withhold theirs.
fed::RoundRecord round_in(const SealedLine& line) {
  auto round = record::read<fed::RoundRecord>(line.view());
  for (const auto& client : round.clients)
    EK_CHECK(round.loss || !client.loss, kCheckpoint, line.place, ": \"loss\" is missing, but client ", client.id,
             " has one");
  return round;
}

void read_lines(RunRecords& run) {
  const auto rounds = fed::read_rounds(run.folder), evaluations = fed::read_evaluations(run.folder);
  for (const auto& line : rounds.whole().lines) run.rounds.push_back(round_in(line));
  Places places;
  for (const auto& line : evaluations.whole().lines)
    add(run.evaluations, places, record::read<fed::EvaluationRecord>(line.view()));
}

}  // namespace

void RunRecords::set_config(const fed::RunConfig& of_run) {
  config = of_run->text();
  seed = of_run->seed;
  model = of_run->model.path;
  method = of_run->method.name;
  settings = with_open_ranks(of_run).values();
}

int64_t RunRecords::last_evaluated() const {
  int64_t last = -1;
  for (const auto& evaluation : evaluations) last = std::max(last, evaluation.round);
  return last;
}

bool RunRecords::lacks_final_scores() const {
  const auto last = last_evaluated();
  return last >= 0 && last < total_rounds;
}

std::vector<scoring::TaskScore> RunRecords::scores(int64_t round) const {
  std::vector<scoring::TaskScore> found;
  for (const auto& evaluation : evaluations)
    if (evaluation.round == round && !evaluation.score.client) found.push_back(evaluation.score);
  return found;
}

RunRecords load_run(const fs::path& folder) {
  EK_CHECK(fed::holds_run(folder), kIo, fed::why_no_run(folder));
  RunRecords run;
  run.folder = folder;
  run.label = folder_name(folder);
  const auto config = fed::run_config(folder);
  run.set_config(config);
  run.config = read_file(folder / "config.toml");
  run.manifest = fed::read_manifest(folder);
  read_rounds_to_do(run, config->train.rounds);
  read_lines(run);
  if (const auto sum = fed::summary_of(folder / "federation" / fed::kAuditFile).of(fed::AuditWork::kScore);
      sum.replies + sum.lost > 0)
    run.scoring = sum;
  return run;
}

std::vector<RunRecords> load_runs(std::span<const fs::path> folders) {
  std::vector<RunRecords> runs;
  std::multiset<std::string> labels;
  for (const auto& folder : folders) {
    runs.push_back(load_run(folder));
    labels.insert(runs.back().label);
  }
  for (auto& run : runs)
    if (labels.count(run.label) > 1) run.label = run.folder.string();
  return runs;
}

}  // namespace evenkeel::records
