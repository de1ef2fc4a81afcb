#include "fed/run/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/format/command_line.h"
#include "base/plain/data_path.h"
#include "base/plain/dead_parts.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "fed/store/changeable_keys.h"
#include "fed/store/manifest.h"
#include "fed/store/moved_rows.h"
#include "lora/peft.h"

namespace evenkeel::fed {
namespace {

/// Marker file in the folder from prepare() until the manifest is written. While it exists, all other files are
/// replaced.
constexpr std::string_view kUnfinished = run_file(".unfinished");
constexpr std::string_view kConfigFile = run_file("config.toml"), kPartition = run_file("partition.json"),
                           kChatTemplate = run_file("chat_template.jinja");  // a copy of that of data.chat_template
constexpr std::string_view kFederation = run_file("federation");             // flower/federation/serve.h
constexpr std::string_view kAdapter = run_file("adapter"), kItems = run_file("items");
constexpr std::string_view kRounds = run_file("rounds.jsonl"), kEvaluations = run_file("evaluations.jsonl"),
                           kEvaluating = run_file("evaluating.jsonl"), kRows = run_file("rows"),
                           kSuperseded = run_file("superseded.jsonl"),
                           kMissingScores = run_file("missing_scores.jsonl"), kLog = run_file("log.txt");
const std::vector<std::string> kFirstFiles = {std::string(kConfigFile), std::string(kPartition),
                                              std::string(kChatTemplate), std::string(kManifestFile),
                                              std::string(kUnfinished)};

fs::path items_file(const fs::path& folder, int64_t round) {
  return folder / kItems / concat("round-", round, ".jsonl");
}

bool names_exactly(const fs::path& file, std::string_view name) {
  return file.filename() == name || is_temporary_of(file, name);
}

/// Returns true if the folder holds only a lock, temporary files of the marker, rows that were written for the run, and
/// with `federation` the folder of a server that waits for its clients.
bool only_locked(const fs::path& folder, bool federation = false) {
  const auto entries = entries_of(folder);
  return std::all_of(entries.begin(), entries.end(), [&](const fs::path& entry) {
    return FolderLock::is_lock(entry) || names_exactly(entry, kUnfinished) || entry.filename() == kRows ||
           (federation && entry.filename() == kFederation);
  });
}

bool only_began(const fs::path& folder) {
  return is_folder(folder) && (path_exists(folder / kUnfinished) || only_locked(folder));
}

/// Removes temporary files that killed processes have left of the files that a run writes.
void remove_leftover_parts(const fs::path& folder) {
  remove_dead_parts(folder, [](std::string_view name) { return is_run_file(name) || name == "report.html"; });
  const auto is_json = [](std::string_view name) { return name.ends_with(".json"); };
  remove_dead_parts(folder / kFederation, is_json);
  remove_dead_parts(folder / kItems, [](std::string_view name) { return name.starts_with("round-"); });
  remove_dead_parts(folder / run_file("tensorboard"),
                    [](std::string_view name) { return name.starts_with("events."); });
  for (const auto adapter : {kAdapter, run_file("best")})
    remove_parts(folder / adapter, {"adapter_model.safetensors", "adapter_config.json"});
}

/// Removes everything that an unfinished create() made. The marker stays: without it the rest would belong to nobody.
void remove_leftovers(const fs::path& folder) {
  for (const auto& name : kFirstFiles)
    if (name != kUnfinished) remove_path(folder / name);
  remove_leftover_parts(folder);
  const auto checkpoint = folder / run_file("checkpoint");
  remove_path(checkpoint / "commit.json");
  remove_parts(checkpoint, {"commit.json"});
  std::error_code not_empty;  // then it is somebody else's, and the folder not empty
  fs::remove(checkpoint, not_empty);
}

/// Checks that no other process works in the folder. \throws kIo with advice
void check_unused(const fs::path& folder) {
  FolderLock::check_free(folder, concat("wait for its end, or choose another --out; see how far it is by: ",
                                        command_line({"status", folder.string()})));
}

/// Checks that the folder holds only what only_locked() allows. \throws kIo
void check_empty(const fs::path& folder, bool federation) {
  EK_CHECK(only_locked(folder, federation), kIo, folder.string(),
           ": exists already and is not empty; choose another --out");
}

/// Checks that no server waited in the folder for the clients of a run. \throws kIo with advice
void check_nobody_awaited(const fs::path& folder) {
  EK_CHECK(!RunFolder::awaits_clients(folder), kIo, folder.string(),
           ": a server has waited here for its clients: go on by the same command with --resume, or choose another "
           "--out; see who has joined by: ",
           command_line({"status", folder.string()}));
}

OrderedJson numbers_of(const std::vector<FileRow>& rows) {
  auto json = OrderedJson::array();
  for (const auto& row : rows) json.push_back(row.row);
  return json;
}

OrderedJson files_of(const std::vector<FileRow>& rows) {
  auto json = OrderedJson::array();
  for (const auto& row : rows) json.push_back(row.file ? OrderedJson(*row.file) : OrderedJson());
  return json;
}

/// Returns true if all rows are of the first file, or all are generated.
bool are_of_one_file(const Shards& shards) {
  const auto file = shards.files.empty() ? std::optional<size_t>() : std::optional<size_t>(0);
  const auto all_of_it = [&](const std::vector<FileRow>& rows) {
    return std::all_of(rows.begin(), rows.end(), [&](const FileRow& row) { return row.file == file; });
  };
  return all_of_it(shards.held_out) && std::all_of(shards.rows.begin(), shards.rows.end(), all_of_it);
}

OrderedJson partition_json(const Shards& shards) {
  auto clients = OrderedJson::array(), files = OrderedJson::array();
  for (const auto& rows : shards.rows) clients.push_back(numbers_of(rows)), files.push_back(files_of(rows));
  OrderedJson json = {{"files", shards.files},
                      {"cut", shards.cut},
                      {"without_target", shards.without_target},
                      {"clients", std::move(clients)},
                      {"held_out", numbers_of(shards.held_out)}};
  if (!are_of_one_file(shards)) {
    json["file_of_client_rows"] = std::move(files);
    json["file_of_held_out"] = files_of(shards.held_out);
  }
  if (!shards.files_of.empty()) json["client_files"] = shards.files_of;
  return json;
}

/// Reads the text of the settled config in a file of the run folder.
RunConfig parse_config(const std::string& text, const fs::path& folder, std::string_view file) {
  const auto place = (folder / file).string();
  auto values = ExperimentConfig::read(config::Table::parse(text, place));
  values.output.dir = folder.string();
  find_moved_rows(values, folder);
  return RunConfig::of_settled(std::move(values), place);
}

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

/// Returns the config in `manifest`. \throws kConfig unless config.toml holds the same bytes
RunConfig checked_config(const fs::path& folder, const Json& manifest) {
  const auto file = folder / kConfigFile;
  const auto then = JsonView(manifest, (folder / kManifestFile).string(), kCheckpoint).at("config").string();
  auto config = parse_config(then, folder, kManifestFile);
  const auto now = read_file(file);
  if (now == then || is_config_before_change(manifest, now)) return config;
  const auto who = concat(file.string(), " is not as the run wrote it (manifest.json holds that text as \"config\")");
  std::vector<std::string> changes;
  try {
    changes = difference_lines(parse_config(now, folder, kConfigFile), config);
  } catch (const Error& error) {
    throw error.with_context(who);
  }
  fail(kConfig, who, ": ", changes.empty() ? "no key has another value, but bytes differ" : join(changes, "; "));
}

/// Returns the path of the run's copy of its chat template. \throws kCheckpoint when it has changed
std::string own_template(const fs::path& folder, const Json& manifest) {
  const auto file = folder / kChatTemplate;
  const auto then = JsonView(manifest, (folder / kManifestFile).string(), kCheckpoint).at("chat_template").string();
  EK_CHECK(path_exists(file) && sha256_file(file) == then, kCheckpoint, file.string(),
           " is not the chat template that the run was begun with: its sha256 was ", then);
  return absolute_path(file);
}

/// Checks that the file that the run's chat template was copied from is gone or unchanged.
void check_template_source(const fs::path& folder, const Json& manifest) {
  const JsonView view(manifest, (folder / kManifestFile).string(), kCheckpoint);
  const auto source = parse_config(view.at("config").string(), folder, kManifestFile)->data.chat_template;
  if (source.empty() || !path_exists(source)) return;
  EK_CHECK(sha256_file(source) == view.at("chat_template").string(), kData, "data.chat_template: ", source,
           " has changed since the run was made, which goes on with its copy (", (folder / kChatTemplate).string(),
           "): put it back, or take it away");
}

/// Returns the absolute folder that --base names.
fs::path moved_base(const std::string& base) { return absolute_path(models::find_model_folder(base)); }

SealedLines numbered(SealedLines lines) {
  for (size_t i = 0; i < lines.lines.size(); ++i) {
    const auto& line = lines.lines[i];
    const auto round = line.view().at("round").integer();
    if (round == static_cast<int64_t>(i) + 1) continue;
    lines.damage = Error(kCheckpoint, concat(line.place, ": is of round ", round, ", expected ", i + 1));
    lines.lines.resize(i);
    break;
  }
  return lines;
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

FolderLock RunFolder::prepare(const fs::path& folder, bool goes_on) {
  check_unused(folder);
  EK_CHECK(!holds_run(folder), kIo, folder.string(),
           " holds a run already: choose another --out, or resume it with: ", resume_command(folder));
  if (!goes_on) check_nobody_awaited(folder);
  if (!only_began(folder)) make_new_folder(folder);
  FolderLock lock(folder);
  EK_CHECK(!holds_run(folder), kIo, folder.string(),
           " holds a run by now, another process began it: choose another --out, or see it by: ",
           command_line({"status", folder.string()}));
  if (only_began(folder)) remove_leftovers(folder);
  check_empty(folder, goes_on);
  write_file_atomic(folder / kUnfinished, "");
  return lock;
}

void RunFolder::abandon(const fs::path& folder, FolderLock lock) {
  remove_leftovers(folder);
  remove_path(folder / kFederation);
  remove_path(folder / kUnfinished);
  { const FolderLock last = std::move(lock); }
  std::error_code not_empty;  // then somebody else has put something there
  fs::remove(folder, not_empty);
}

bool RunFolder::holds_run(const fs::path& folder) { return holds_manifest(folder); }

bool RunFolder::nothing_began(const fs::path& folder) {
  return !holds_run(folder) && (!path_exists(folder) || only_began(folder));
}

bool RunFolder::awaits_clients(const fs::path& folder) {
  const auto federation = folder / kFederation;
  return !holds_run(folder) && only_began(folder) && is_folder(federation) && !entries_of(federation).empty();
}

RunFolder RunFolder::create(const fs::path& folder, FolderLock lock, const Server& server, const Shards* shards,
                            const RunRequest& request, const ExperimentConfig& asked) {
  RunFolder run(folder, std::move(lock), server.config);
  write_file_atomic(folder / kConfigFile, run.config_->text());
  if (shards) write_sealed(folder / kPartition, partition_json(*shards));
  run.checkpoint_.begin();
  auto files = input_files(run.config_, server.model_folder, shards ? shards->files : std::vector<std::string>());
  const auto& own = run.config_->data.chat_template;
  std::erase(files, fs::path(own));  // the run goes on with its copy
  auto manifest = make_manifest(run.config_, request, asked, files);
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
  run.opened_ = from_round ? run.checkpoint_.read(*from_round) : run.checkpoint_.read();
  run.read_records(from_round);
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
  const auto file = folder_ / kPartition;
  EK_CHECK(!shards || partition_now(folder_, read_sealed(file)) == Json(partition_json(*shards)), kCheckpoint,
           file.string(), ": config and data deal out other rows than the run was made with");
  if (opened_.commit.round > 0)
    check_state(opened_.snapshot.state, server.sites, (opened_.folder / "state.safetensors").string());
}

void RunFolder::check_files() {
  const auto file = folder_ / kPartition;
  std::vector<std::string> training;
  if (path_exists(file)) {
    const auto partition = partition_now(folder_, read_sealed(file));
    training = JsonView(partition, file.string(), kCheckpoint).at("files").strings();
  }
  const auto scores = kept_scores();
  const auto manifest = read_manifest(folder_);
  changes_.files =
      check_input_files(folder_, manifest, models::find_model_folder(config_->model.path),
                        [&](const fs::path& changed) { return why_fixed(changed, config_, training, scores); });
  check_template_source(folder_, manifest);
  check_program(folder_, manifest);
  for (const auto& changed : changes_.files)
    log::warning("[train] ", changed.string(), " has changed since the run was made: no score was computed from it");
}

void RunFolder::extend(int64_t rounds) {
  if (rounds == config_->train.rounds) return;
  check_extension(config_, opened_.commit.round, rounds);
  log::warning("[train] the run has ", rounds, " rounds from now on, it had ", config_->train.rounds);
  config_ = config_.with([&](ExperimentConfig& values) { values.train.rounds = rounds; });
  changes_.rounds = rounds;
}

std::string RunFolder::why_fixed_key(const std::string& key) const {
  return why_not_changeable(key, config_, kept_scores().size());
}

void RunFolder::change_keys(const std::vector<ChangedKey>& keys, const RunRequest& request) {
  if (keys.empty()) return;
  const auto begun = begun_request(folder_);
  const auto asked = request.config(begun.settings);
  auto then = begun.config;
  take_values(keys, asked, then);
  changes_.keys = {.keys = keys, .asked = then.text()};
  for (const auto& [key, now, before] : keys) {
    log::warning("[train] ", key, " is ", now.value_or("not there"), " after round ", opened_.commit.round, ", it was ",
                 before.value_or("not there"));
    if (now && request.says(key)) changes_.keys.settings.push_back(concat(key, "=", *now));
  }
  config_ = config_.with([&](ExperimentConfig& values) { take_values(keys, asked, values); });
}

void RunFolder::admit(const std::optional<std::vector<std::string>>& allowed) {
  if (!allowed) return;
  changes_.admission = admission_change(read_manifest(folder_), *allowed);
  if (!changes_.admission) return;
  for (const auto& key : changes_.admission->added) log::warning("[serve] ", key, " may join from now on");
  for (const auto& key : changes_.admission->removed) log::warning("[serve] ", key, " may not join any more");
}

void RunFolder::use_method(bool may_change) {
  const auto& entry = config_->method.entry();
  changes_.method = has_changed_method(read_manifest(folder_), entry, may_change);
  if (changes_.method) log::warning("[train] the source of method ", entry.name, " has changed since the run was made");
}

void RunFolder::use_base(const std::string& base) {
  if (base.empty()) return;
  const auto folder = moved_base(base);
  if (folder == config_->model.path) return;  // as an earlier command said
  changes_.base = folder;
  config_ = config_.with([&](ExperimentConfig& values) { values.model.path = changes_.base.string(); });
}

/// Returns the scores up to the opened round.
std::vector<EvaluationRecord> RunFolder::kept_scores() const {
  std::vector<EvaluationRecord> kept;
  for (const auto& line : read_evaluations(folder_).lines)
    if (line.end <= evaluation_bytes_) kept.push_back(record::read<EvaluationRecord>(line.view()));
  return kept;
}

/// Moves scores to superseded.jsonl that a run with the new number of rounds would not have computed: those of the
/// round that was the last one.
void RunFolder::set_aside_scores() const {
  const auto file = folder_ / kEvaluations;
  if (!path_exists(file)) return;
  const auto before = run_config(folder_);
  const auto is_kept = [&](int64_t round) {
    const bool was_due = before->evaluate.every > 0 && round % before->evaluate.every == 0;
    return round != before->train.rounds || was_due || config_->evaluates_after(round);
  };
  const std::string text = read_file(file);
  std::string kept;
  int64_t begin = 0;
  for (const auto& line : read_evaluations(folder_).lines) {
    const auto own = text.substr(static_cast<size_t>(begin), static_cast<size_t>(line.end - begin));
    if (is_kept(line.view().at("round").integer()))
      kept += own;
    else
      append_line(folder_ / kSuperseded, std::string_view(own).substr(0, own.size() - 1));
    begin = line.end;
  }
  if (kept != text) write_file_atomic(file, kept);
}

/// Writes the manifest before config.toml, so that a reader between the two writes can detect the change.
void RunFolder::write_changes() const {
  if (changes_.rounds) set_aside_scores();
  if (!changes_.files.empty()) remove_path(folder_ / kEvaluating);  // answers to rows that are no more
  if (changes_.any()) {
    const auto manifest = load_json<OrderedJson>(folder_ / kManifestFile, kCheckpoint);
    write_manifest(folder_, changed_manifest(manifest, changes_, config_, opened_.commit.round));
  }
  const auto manifest = read_manifest(folder_);
  const auto& text = JsonView(manifest, (folder_ / kManifestFile).string(), kCheckpoint).at("config").string();
  if (read_file(folder_ / kConfigFile) != text) write_file_atomic(folder_ / kConfigFile, text);
}

void RunFolder::settle() const {
  checkpoint_.settle(opened_.commit);
  remove_path(folder_ / kUnfinished);
  remove_leftover_parts(folder_);
  shorten_file(folder_ / kEvaluations, evaluation_bytes_);
  shorten_file(folder_ / kRounds, round_bytes_);
  if (record_missing_) append_line(folder_ / kRounds, opened_.commit.record);
  write_changes();
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
  background_->give([checkpoint = checkpoint_, round = snapshot.state.round] { checkpoint.clear(round, round); });
  if (!is_small(snapshot.state)) return save_adapter(snapshot.state, server);
  background_->give(adapter_writer(folder_ / kAdapter, snapshot.state, server));
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
  log_->open(folder_ / kLog);
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
  make_folders(folder_ / kItems);
  append_sealed(items_file(folder_, items.round), record::write(items));
}

void RunFolder::add_missing(const MissingScore& score) const {
  append_sealed(folder_ / kMissingScores, record::write(score));
}

const std::shared_ptr<scoring::AnswerJournal>& RunFolder::answers() const {
  if (!answers_) answers_ = std::make_shared<scoring::AnswerJournal>(folder_ / kEvaluating);
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

RunConfig run_config(const fs::path& folder) {
  EK_CHECK(RunFolder::holds_run(folder), kIo, why_no_run(folder));
  const auto manifest = read_manifest(folder);
  const auto config = checked_config(folder, manifest);
  if (config->data.chat_template.empty()) return config;
  return config.with([&](ExperimentConfig& values) { values.data.chat_template = own_template(folder, manifest); });
}

RunConfig config_with_base(const fs::path& folder, const std::string& base) {
  auto config = run_config(folder);
  if (!base.empty())
    config = config.with([&](ExperimentConfig& values) { values.model.path = moved_base(base).string(); });
  check_base(read_manifest(folder), models::find_model_folder(config->model.path));
  return config;
}

SealedLines read_rounds(const fs::path& folder) { return numbered(read_sealed_lines(folder / kRounds)); }

SealedLines read_evaluations(const fs::path& folder) { return read_sealed_lines(folder / kEvaluations); }

std::vector<ItemRecord> read_items(const fs::path& folder, int64_t round) {
  std::vector<ItemRecord> items;
  const auto lines = read_sealed_lines(items_file(folder, round));
  for (const auto& line : lines.whole().lines) items.push_back(record::read<ItemRecord>(line.view()));
  return items;
}

}  // namespace evenkeel::fed
