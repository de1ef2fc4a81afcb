#include "report/run_records.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/config.h"
#include "base/files.h"
#include "base/log.h"
#include "fed/evaluation.h"
#include "fed/manifest.h"
#include "fed/run_folder.h"

namespace evenkeel {
namespace {

constexpr std::array<std::string_view, 9> kRoundNumbers = {
    "round", "loss", "steps", "tokens", "bytes_up", "bytes_down", "experts_per_token", "flops", "participants"};

/// Complete lines of a file as versions without checksums wrote it, handed over with "file, line n".
template <typename Use>
void for_each_unsealed_line(const fs::path& file, Use use) {
  if (!path_exists(file)) return;
  const std::string text = read_file(file);
  size_t start = 0, number = 1;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1, ++number) {
    const auto place = concat(file.string(), ", line ", number);
    use(parse_json(std::string_view(text).substr(start, end - start), place, kCheckpoint), place);
  }
}

/// Everything that tables and charts read of a round, by type.
void check_round(const JsonView& record) {
  for (const auto key : kRoundNumbers) record.at(key).number();
  for (const auto* key : {"bytes_up_parts", "bytes_down_parts"})
    if (const auto parts = record.find(key))
      for (const auto& part : parts->members()) part.number();
  if (const auto dead = record.find("dead_experts"); dead && dead->json().is_array()) dead->integers(0);
  if (const auto clients = record.find("clients"))
    for (const auto& client : clients->items())
      for (const auto* key : {"bytes_up", "bytes_down", "flops"})
        if (client.json().contains(key)) client.at(key).number();
}

Evaluation evaluation_of(const Json& line, const std::string& place) {
  const JsonView view(line, place, kCheckpoint);
  return {view.at("round").integer(0), task_score(view)};
}

void add(std::vector<Evaluation>& all, Evaluation made) {
  for (auto& known : all)
    if (known.round == made.round && known.score.task == made.score.task && known.score.budget == made.score.budget &&
        known.score.reading == made.score.reading) {
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
}

std::string folder_name(const fs::path& folder) {
  std::error_code error;
  const auto path = fs::weakly_canonical(folder, error);
  EK_CHECK(!error, kIo, folder.string(), ": has no whole path: ", error.message());
  return path.filename().string();
}

void add_round(RunRecords& run, Json record, const std::string& place) {
  check_round(JsonView(record, place, kCheckpoint));
  run.rounds.push_back(std::move(record));
}

void read_unsealed(RunRecords& run) {
  log::warning("[report] ", run.folder.string(),
               " was made by an older version, whose files carry no checksums: what it says is taken as it is");
  run.manifest = load_json(run.folder / "manifest.json", kCheckpoint);
  JsonView(run.manifest, (run.folder / "manifest.json").string(), kCheckpoint).string_or("version", "");
  run.config = read_file(run.folder / "config.toml");
  read_config(run);
  for_each_unsealed_line(run.folder / "rounds.jsonl",
                         [&](Json record, const std::string& place) { add_round(run, std::move(record), place); });
  for_each_unsealed_line(run.folder / "evaluations.jsonl", [&](const Json& line, const std::string& place) {
    add(run.evaluations, evaluation_of(line, place));
  });
}

void read_sealed_run(RunRecords& run) {
  run_config(run.folder);  // checks it against the manifest
  run.manifest = read_manifest(run.folder);
  run.config = read_file(run.folder / "config.toml");
  read_config(run);
  auto rounds = read_rounds(run.folder);
  rounds.whole();
  for (auto& line : rounds.lines) add_round(run, std::move(line.json), line.place);
  const auto evaluations = read_evaluations(run.folder);
  for (const auto& line : evaluations.whole().lines) add(run.evaluations, evaluation_of(line.json, line.place));
}

}  // namespace

int64_t RunRecords::last_evaluated() const {
  int64_t last = -1;
  for (const auto& evaluation : evaluations) last = std::max(last, evaluation.round);
  return last;
}

std::vector<TaskScore> RunRecords::scores(int64_t round) const {
  std::vector<TaskScore> found;
  for (const auto& evaluation : evaluations)
    if (evaluation.round == round) found.push_back(evaluation.score);
  return found;
}

RunRecords load_run(const fs::path& folder) {
  EK_CHECK(RunFolder::holds_run(folder), kIo, folder.string(), " holds no run: manifest.json is missing");
  RunRecords run;
  run.folder = folder;
  run.label = folder_name(folder);
  is_unsealed_run(folder) ? read_unsealed(run) : read_sealed_run(run);
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

}  // namespace evenkeel
