#include "fed/run/run_folder.h"

#include <unistd.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "fed/round/client_privacy.h"
#include "fed/run/new_run_folder.h"
#include "fed/run/partition_file.h"
#include "fed/run/stored_config.h"
#include "fed/run/stored_records.h"
#include "fed/store/manifest.h"
#include "fed/store/run_files.h"
#include "lora/peft.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kRounds = run_file("rounds.jsonl"), kEvaluations = run_file("evaluations.jsonl");

/// Returns the paths of the input files; none if the manifest cannot be read.
std::vector<fs::path> files_in_manifest(const fs::path& folder) try {
  std::vector<fs::path> files;
  const Json manifest = read_manifest(folder);
  for (const auto& entry : JsonView(manifest, kManifestFile.data()).at("files").items())
    files.emplace_back(entry.at("path").string());
  return files;
} catch (const Error&) {  // damaged: whoever needs it says so
  return {};
}

/// Returns the simulated time at the end of a committed round, from its line of rounds.jsonl in the commit.
double simulated_seconds(const Commit& commit) {
  const auto source = concat("the record of round ", commit.round);
  const Json json = parse_json(commit.record, source, kCheckpoint);
  const auto simulated = JsonView(json, source, kCheckpoint).find("simulated");
  return simulated ? record::read<SimulatedRound>(*simulated).end : 0;
}

/// Checks that all lines are undamaged. \throws kCheckpoint naming the first that is not
void check_whole(const SealedLines& rounds, const SealedLines& evaluations) {
  rounds.whole();
  for (const auto& line : evaluations.whole().lines) record::read<EvaluationRecord>(line.view());
}

/// Returns the number of lines before the first one of a round later than `round`.
size_t lines_until(const SealedLines& evaluations, int64_t round) {
  const auto& lines = evaluations.lines;
  const auto later = std::find_if(lines.begin(), lines.end(),
                                  [&](const SealedLine& line) { return line.view().at("round").integer() > round; });
  return static_cast<size_t>(later - lines.begin());
}

/// Returns a function that writes adapter/. It holds copies of the data it needs, so it can run in another thread.
std::function<void()> adapter_writer(const fs::path& folder, const methods::ServerState& state, const Server& server) {
  return [folder, change = state.common.base_change,
          adapters = lora::completed(state.global.adapters, state.common.fixed), sites = server.all_sites,
          options = lora::PeftOptions{server.model_folder.string(), lora::standard_layout(server.model.peft)}] {
    lora::save_peft_adapter(folder, lora::Joined(change, adapters), sites, options);
  };
}

/// Returns true if the adapter is small enough to be written in the background while the next round runs.
bool is_small(const methods::ServerState& state) {
  constexpr int64_t kMostNumbers = int64_t{1} << 24;
  int64_t numbers = 0;
  for (const auto& [site, factors] : lora::completed(state.global.adapters, state.common.fixed))
    for (const auto* factor : {&factors.a, &factors.b}) numbers += factor->numel();
  return state.common.base_change.empty() && numbers <= kMostNumbers;
}

}  // namespace

RunFolder RunFolder::create(const fs::path& folder, FolderLock lock, const Server& server, const Shards* shards,
                            const RunRequest& request, const ExperimentConfig& asked) {
  RunFolder run(folder, std::move(lock), server.config);
  const auto& config = run.config();
  write_file_atomic(folder / kConfigFile, config->text());
  if (shards) write_partition(folder, *shards);
  run.checkpoint_.begin();
  auto files = input_files(config, server.model_folder, shards ? shards->files : std::vector<std::string>());
  const auto& own = config->data.chat_template;
  std::erase(files, fs::path(own));  // the run goes on with its copy
  auto manifest = make_manifest(config, request, asked, files);
  if (!own.empty()) {
    write_file_atomic(folder / kChatTemplate, read_file(own));
    manifest["chat_template"] = sha256_file(folder / kChatTemplate);
  }
  write_manifest(folder, manifest);
  remove_path(folder / kUnfinished);
  return run;
}

RunFolder RunFolder::open(const fs::path& folder, std::optional<int64_t> from_round) {
  EK_CHECK(holds_run(folder), kIo, why_no_run(folder));
  check_unused(folder);
  FolderLock lock(folder);
  RunFolder run(folder, std::move(lock), run_config(folder));
  run.goes_back_ = from_round.has_value();
  run.opened_ = from_round ? run.checkpoint_.read(*from_round) : run.checkpoint_.read();
  run.read_records(from_round);
  run.changes_ = ResumedChanges(folder, run.config(), run.opened_round(), run.evaluation_bytes_);
  return run;
}

/// Reads and checks the lines of all rounds up to the opened one. The opened round's own line may be missing, because
/// its commit holds a copy. With `from_round`, later lines may be damaged.
void RunFolder::read_records(std::optional<int64_t> from_round) {
  const auto rounds = read_rounds(folder_), evaluations = read_evaluations(folder_);
  const auto& commit = opened_.commit;
  const auto needed = static_cast<size_t>(std::max<int64_t>(commit.round - 1, 0));
  const auto reaches = [&](int64_t round) { return static_cast<int64_t>(rounds.lines.size()) + 1 >= round; };
  try {
    if (!from_round) check_whole(rounds, evaluations);
    const bool enough = rounds.lines.size() >= needed;
    const bool too_many = !from_round && static_cast<int64_t>(rounds.lines.size()) > commit.round;
    EK_CHECK(enough && !too_many, kCheckpoint, (folder_ / kRounds).string(), ": holds ", rounds.lines.size(),
             " whole lines, committed are ", commit.round, " rounds");
  } catch (const Error& damage) {
    throw checkpoint_.with_recovery_hint(damage, reaches);
  }
  record_missing_ = static_cast<int64_t>(rounds.lines.size()) < commit.round;
  const size_t kept = std::min(rounds.lines.size(), static_cast<size_t>(commit.round));
  round_bytes_ = kept > 0 ? rounds.lines[kept - 1].end : 0;
  const size_t scores = lines_until(evaluations, commit.round);
  evaluation_bytes_ = scores > 0 ? evaluations.lines[scores - 1].end : 0;
  if (evaluations.damage && scores == evaluations.lines.size())
    log::warning("[train] ", evaluations.damage->what(), "; evaluations from that line on are dropped");
}

void RunFolder::check(const Server& server, const Shards* shards) const {
  if (shards) check_partition(folder_, *shards);
  check_account(server, folder_, opened_.commit.round);
  if (opened_.commit.round > 0)
    check_state(opened_.snapshot.state, server.sites, (opened_.folder / "state.safetensors").string());
}

void RunFolder::settle() const {
  if (goes_back_) remove_path(folder_ / run_file("evaluating.jsonl"));  // answers of a round that is made again
  checkpoint_.settle(opened_.commit);
  remove_path(folder_ / kUnfinished);
  remove_leftover_parts(folder_);
  shorten_file(folder_ / kEvaluations, evaluation_bytes_);
  shorten_file(folder_ / kRounds, round_bytes_);
  if (record_missing_) append_line(folder_ / kRounds, opened_.commit.record);
  changes_.write();
}

std::optional<Snapshot> RunFolder::take_snapshot() {
  if (opened_.commit.round == 0) return std::nullopt;
  opened_.snapshot.clock = simulated_seconds(opened_.commit);
  return std::move(opened_.snapshot);
}

void RunFolder::commit(const Snapshot& snapshot, const RoundRecord& record, const Server& server) const {
  const auto line = sealed(record::write(record));
  checkpoint_.commit(snapshot, line);
  append_line(folder_ / kRounds, line);
  const bool small = is_small(snapshot.state);
  if (!small) background_->finish();  // else adapter/ of the previous round could replace that of this one
  background_->give([checkpoint = checkpoint_, round = snapshot.state.round] { checkpoint.remove_older(round); });
  if (!small) return save_adapter(snapshot.state, server);
  background_->give(adapter_writer(folder_ / run_file("adapter"), snapshot.state, server));
}

void RunFolder::finish(int64_t last_round) const {
  background_->finish();
  checkpoint_.clear(last_round, last_round + 1);
}

void RunFolder::save_adapter(const methods::ServerState& state, const Server& server, std::string_view part) const {
  adapter_writer(folder_ / part, state, server)();
}

void RunFolder::keep_log(std::unique_ptr<log::File> held) {
  log_ = std::move(held);
  log_->note(log::Level::kInfo, concat("[run] evenkeel ", version(), ", process ", ::getpid()));
  log_->open(folder_ / run_file("log.txt"));
}

void RunFolder::note(log::Level level, std::string_view line) const {
  if (log_) log_->note(level, line);
}

void RunFolder::add_evaluation(const EvaluationRecord& score) const {
  append_sealed(folder_ / kEvaluations, record::write(score));
}

void RunFolder::keep_items(int64_t round, const std::function<bool(const ItemRecord&)>& keep) const {
  const auto file = items_file(folder_, round);
  if (!is_file(file)) return;
  std::string text;
  for (const auto& items : read_items(folder_, round))
    if (keep(items)) text += sealed(record::write(items)) + '\n';
  write_file_atomic(file, text);
}

void RunFolder::add_items(const ItemRecord& items) const {
  make_folders(folder_ / run_file("items"));
  append_sealed(items_file(folder_, items.round), record::write(items));
}

void RunFolder::add_missing(const MissingScore& score) const {
  append_sealed(folder_ / run_file("missing_scores.jsonl"), record::write(score));
}

const std::shared_ptr<scoring::AnswerJournal>& RunFolder::answers() const {
  if (!answers_) answers_ = std::make_shared<scoring::AnswerJournal>(folder_ / run_file("evaluating.jsonl"));
  return answers_;
}

std::vector<SealedLine> RunFolder::evaluations() const { return read_evaluations(folder_).whole().lines; }

std::vector<fs::path> files_of_run(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto name : kRunFiles) {
    const auto path = folder / name;
    if (is_file(path)) files.push_back(path);
    if (!is_folder(path)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
  }
  for (auto& file : files_in_manifest(folder)) files.push_back(std::move(file));
  return files;
}

}  // namespace evenkeel::fed
