#include "fed/store/run_changes.h"

#include <algorithm>
#include <iterator>

#include "base/plain/clock.h"
#include "base/plain/files.h"
#include "fed/store/manifest.h"
#include "methods/described_method.h"

namespace evenkeel::fed {
namespace {

constexpr const char* kChanges = "changes";
constexpr const char* kConfigBefore = "config_before";  // SHA-256 of the config text before the change

using Files = std::vector<fs::path>;

bool holds(const Files& files, const fs::path& file) {
  return std::any_of(files.begin(), files.end(), [&](const fs::path& one) { return fs::absolute(one) == file; });
}

Files encoder_files(const RunConfig& config) {
  const auto& bert = config->evaluate.bert_score;
  auto files = bert.encoder.empty() ? Files() : model_files(bert.encoder);
  if (!bert.baseline.empty()) files.emplace_back(bert.baseline);
  return files;
}

Files files_of_task(const std::string& task, const data::RowOptions& rows) {
  const auto files = data::test_files(data::find_task(task, rows), rows);
  return {files.begin(), files.end()};
}

/// Returns the files that `score` was computed from, without the model and the training files.
Files files_of(const scoring::TaskScore& score, const RunConfig& config) {
  const bool own = score.client && score.client->rows == scoring::RowsOf::kOwn;
  const auto tasks = config.tasks_here();
  Files files;
  if (std::find(tasks.begin(), tasks.end(), score.task) != tasks.end())
    files = files_of_task(score.task, config.rows_to_score(own ? std::optional(score.client->id) : std::nullopt, 0));
  if (!score.bert_score) return files;
  const auto encoder = encoder_files(config);
  files.insert(files.end(), encoder.begin(), encoder.end());
  return files;
}

/// Returns the files that only scores are computed from.
Files evaluation_files(const RunConfig& config) {
  auto files = encoder_files(config);
  for (const auto& task : config.tasks_here())
    for (auto& file : files_of_task(task, config.rows_to_score(std::nullopt, 0))) files.push_back(std::move(file));
  return files;
}

/// Adds a number of rounds to the settings of the command that began the run, in the place of an earlier addition.
void add_rounds(OrderedJson& settings, int64_t rounds) {
  constexpr std::string_view kRounds = "train.rounds=";
  if (!settings.empty() && settings.back().get<std::string>().starts_with(kRounds)) settings.erase(settings.size() - 1);
  settings.push_back(concat(kRounds, rounds));
}

/// Records the changed keys in `entry`, and makes them part of the request that began the run, so that later commands
/// are compared with them.
void change_keys(OrderedJson& manifest, OrderedJson& entry, const KeyChanges& changes) {
  auto& request = manifest.at("request");
  for (const auto& setting : changes.settings) request.at("settings").push_back(setting);
  request["config"] = changes.asked;
  for (const auto& [key, now, before] : changes.keys)
    entry["keys"][key] = {{"from", before.value_or("")}, {"to", now.value_or("")}};
}

/// Replaces the folder of the base model and the paths of its files.
void move_base(OrderedJson& manifest, const fs::path& folder) {
  auto& base = manifest.at("models").at("base");
  base = {{"path", folder.string()}, {"folder", folder.string()}};
  for (auto& entry : manifest.at("files"))
    if (entry.value("model", "") == "base") entry["path"] = (folder / entry.at("name").get<std::string>()).string();
}

/// Replaces the entries of `files` by fingerprints of the files as they are now.
void renew_files(OrderedJson& entries, const Files& files) {
  for (auto& entry : entries) {
    const fs::path file = entry.at("path").get<std::string>();
    if (!holds(files, file)) continue;
    auto renewed = manifest_entry(file);
    for (const auto* kept : {"clients", "model", "name"})
      if (entry.contains(kept)) renewed[kept] = entry.at(kept);
    entry = std::move(renewed);
  }
}

std::vector<std::string> texts_of(const Files& files) {
  std::vector<std::string> texts;
  for (const auto& file : files) texts.push_back(file.string());
  return texts;
}

}  // namespace

std::string why_fixed(const fs::path& file, const RunConfig& config, std::span<const std::string> training_files,
                      std::span<const EvaluationRecord> scores) {
  const std::string by_default = "a run goes on with the files it began with";
  const Files training(training_files.begin(), training_files.end());
  if (holds(training, file) || !holds(evaluation_files(config), file)) return by_default;
  for (const auto& [round, method, score] : scores)
    if (holds(files_of(score, config), file))
      return concat("scores after round ", round, " were computed from it (evaluations.jsonl)");
  return {};
}

void check_extension(const RunConfig& config, int64_t done, int64_t rounds) {
  EK_CHECK(rounds >= done, kConfig, "train.rounds is ", rounds, ", but ", done, " rounds are done, allowed: ", done,
           " or more; --from-round goes back");
  EK_CHECK(!config->seeks_best() || config->evaluate.every < rounds, kConfig, "train.rounds is ", rounds,
           ", allowed with train.stop or evaluate.keep_best: more than evaluate.every = ", config->evaluate.every);
  const auto& schedule = config->train.schedule;
  EK_CHECK(done == 0 || !schedule.depends_on_rounds(), kConfig, "train.rounds is ", rounds, ", in the run ",
           config->train.rounds, ": train.schedule.kind = \"", config::name_of(schedule.kind),
           "\" runs over all rounds, so a run of ", rounds,
           " had other learning rates from the first round on; allowed: with \"constant\"");
  const auto& privacy = config->privacy;
  const bool begun = done > 0 || privacy.protects_clients();  // the account of such a run begins with its noise
  EK_CHECK(!begun || !privacy.noise_depends_on_rounds(), kConfig, "train.rounds is ", rounds, ", in the run ",
           config->train.rounds, ": its noise is the least for privacy.epsilon over all rounds, so a run of ", rounds,
           " had other noise from the first round on; allowed: with privacy.noise_multiplier given from the start");
}

std::optional<AdmissionChange> admission_change(const Json& manifest, const std::vector<std::string>& allowed) {
  const auto before = JsonView(manifest, std::string(kManifestFile), kCheckpoint).find("allowed");
  const auto known = before ? before->strings() : std::vector<std::string>();
  AdmissionChange change{.allowed = allowed};
  std::set_difference(allowed.begin(), allowed.end(), known.begin(), known.end(), std::back_inserter(change.added));
  std::set_difference(known.begin(), known.end(), allowed.begin(), allowed.end(), std::back_inserter(change.removed));
  if (change.added.empty() && change.removed.empty()) return std::nullopt;
  return change;
}

OrderedJson changed_manifest(const OrderedJson& manifest, const RunChanges& changes, const RunConfig& config,
                             int64_t done) {
  auto changed = manifest;
  changed.erase("checksum");
  OrderedJson entry = {{"at", utc_now()}, {"version", version()}, {"after_round", done}};
  if (!changes.files.empty()) {
    renew_files(changed.at("files"), changes.files);
    entry["files"] = texts_of(changes.files);
  }
  if (changes.rounds) {
    add_rounds(changed.at("request").at("settings"), *changes.rounds);
    entry["train.rounds"] = *changes.rounds;
  }
  if (!changes.base.empty()) {
    move_base(changed, changes.base);
    entry["model.path"] = changes.base.string();
  }
  if (!changes.keys.keys.empty()) change_keys(changed, entry, changes.keys);
  if (changes.admission) {
    changed["allowed"] = changes.admission->allowed;
    entry["allow"] = {{"added", changes.admission->added}, {"removed", changes.admission->removed}};
  }
  if (changes.method) {
    const auto& now = *config->method.entry().described;
    entry["method"] = {{"sha256", now.sha256}, {"before", changed.at("method").at("sha256").get<std::string>()}};
    changed["method"] = now.json;
  }
  if (changes.rounds || !changes.base.empty() || !changes.keys.keys.empty()) {
    entry[kConfigBefore] = sha256(changed.at("config").get<std::string>());
    changed["config"] = config->text();
  }
  if (!changed.contains(kChanges)) changed[kChanges] = OrderedJson::array();
  changed[kChanges].push_back(std::move(entry));
  return changed;
}

bool is_config_before_change(const Json& manifest, std::string_view text) {
  const auto changes = manifest.find(kChanges);
  if (changes == manifest.end() || !changes->is_array() || changes->empty()) return false;
  const auto before = changes->back().find(kConfigBefore);
  return before != changes->back().end() && *before == sha256(text);
}

}  // namespace evenkeel::fed
