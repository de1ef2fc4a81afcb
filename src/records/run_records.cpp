#include "records/run_records.h"

#include <algorithm>
#include <set>

#include "base/format/config_table.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "fed/run/best_round.h"
#include "fed/run/run_folder.h"
#include "fed/store/manifest.h"

namespace evenkeel::records {
namespace {

/// Reads complete lines of a file that was written before lines had checksums.
SealedLines unsealed_lines(const fs::path& file) {
  SealedLines result;
  if (!path_exists(file)) return result;
  const std::string text = read_file(file);
  size_t start = 0, number = 1;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1, ++number) {
    const auto place = concat(file.string(), ", line ", number);
    const auto line = std::string_view(text).substr(start, end - start);
    result.lines.push_back({parse_json(line, place, kCheckpoint), place, static_cast<int64_t>(end) + 1});
  }
  return result;
}

void add(std::vector<fed::EvaluationRecord>& all, fed::EvaluationRecord made) {
  for (auto& known : all)
    if (known.round == made.round && known.score.task == made.score.task && known.score.budget == made.score.budget &&
        known.score.reading == made.score.reading && known.score.served_by == made.score.served_by &&
        known.score.client == made.score.client) {
      known = std::move(made);
      return;
    }
  all.push_back(std::move(made));
}

void read_config(RunRecords& run) {
  const auto table = config::Table::parse(run.config, (run.folder / "config.toml").string());
  run.seed = table.integer("seed").value_or(0);
  run.model = table.table("model").string("path").value_or("");
  run.method = table.table("method").string("name").value_or("");
  const auto rounds = table.table("train").integer("rounds").value_or(0);
  run.rounds_to_do = rounds > 0 ? fed::rounds_to_do(run.folder, rounds) : 0;
  run.stopped_early = run.rounds_to_do < rounds;
}

std::string folder_name(const fs::path& folder) {
  std::error_code error;
  const auto path = fs::weakly_canonical(folder, error);
  EK_CHECK(!error, kIo, folder.string(), ": has no whole path: ", os_error_text(error.value()));
  return path.filename().string();
}

void read_lines(RunRecords& run, const SealedLines& rounds, const SealedLines& evaluations) {
  for (const auto& line : rounds.whole().lines) run.rounds.push_back(record::read<fed::RoundRecord>(line.view()));
  for (const auto& line : evaluations.whole().lines)
    add(run.evaluations, record::read<fed::EvaluationRecord>(line.view()));
}

void read_unsealed(RunRecords& run) {
  log::warning("[report] ", run.folder.string(),
               " was made by an older version, whose files carry no checksums: what it says is taken as it is");
  run.manifest = load_json(run.folder / "manifest.json", kCheckpoint);
  JsonView(run.manifest, (run.folder / "manifest.json").string(), kCheckpoint).string_or("version", "");
  run.config = read_file(run.folder / "config.toml");
  read_config(run);
  read_lines(run, unsealed_lines(run.folder / "rounds.jsonl"), unsealed_lines(run.folder / "evaluations.jsonl"));
}

void read_sealed_run(RunRecords& run) {
  fed::run_config(run.folder);  // checks the config against the manifest
  run.manifest = fed::read_manifest(run.folder);
  run.config = read_file(run.folder / "config.toml");
  read_config(run);
  read_lines(run, fed::read_rounds(run.folder), fed::read_evaluations(run.folder));
}

}  // namespace

int64_t RunRecords::last_evaluated() const {
  int64_t last = -1;
  for (const auto& evaluation : evaluations) last = std::max(last, evaluation.round);
  return last;
}

bool RunRecords::is_unfinished() const {
  const auto last = last_evaluated();
  return last >= 0 && last < rounds_to_do;
}

std::vector<scoring::TaskScore> RunRecords::scores(int64_t round) const {
  std::vector<scoring::TaskScore> found;
  for (const auto& evaluation : evaluations)
    if (evaluation.round == round && !evaluation.score.client) found.push_back(evaluation.score);
  return found;
}

RunRecords load_run(const fs::path& folder) {
  EK_CHECK(fed::RunFolder::holds_run(folder), kIo, fed::why_no_run(folder));
  RunRecords run;
  run.folder = folder;
  run.label = folder_name(folder);
  fed::is_unsealed_run(folder) ? read_unsealed(run) : read_sealed_run(run);
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
