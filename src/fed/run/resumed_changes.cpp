#include "fed/run/resumed_changes.h"

#include <span>
#include <string_view>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/sealed.h"
#include "fed/run/partition_file.h"
#include "fed/run/stored_config.h"
#include "fed/run/stored_records.h"
#include "fed/store/changeable_keys.h"
#include "fed/store/run_checkpoint.h"
#include "fed/store/run_files.h"
#include "models/causal_lm.h"

namespace evenkeel::fed {

void ResumedChanges::take(const RunRequest& request, const SettledChange& as_run) {
  const auto begun = begun_request(folder_);
  const int64_t rounds_before = config_->train.rounds;
  if (const auto rounds = request.rounds(begun.settings)) extend(*rounds);
  take_keys(request, begun, as_run);
  use_method(request.changed_method);
  admit(request.allowed);
  use_base(request.base);
  check_files();
  warn(rounds_before);
}

void ResumedChanges::warn(int64_t rounds_before) const {
  if (taken_.rounds)
    log::warning("[train] the run has ", *taken_.rounds, " rounds from now on, it had ", rounds_before);
  for (const auto& [key, now, before] : taken_.keys.keys)
    log::warning("[train] ", key, " is ", now.value_or("not there"), " after round ", round_, ", it was ",
                 before.value_or("not there"));
  if (taken_.method)
    log::warning("[train] the source of method ", config_->method.entry().name, " has changed since the run was made");
  if (taken_.admission) {
    for (const auto& key : taken_.admission->added) log::warning("[serve] ", key, " may join from now on");
    for (const auto& key : taken_.admission->removed) log::warning("[serve] ", key, " may not join any more");
  }
  for (const auto& changed : taken_.files)
    log::warning("[train] ", changed.string(), " has changed since the run was made: no score was computed from it");
}

void ResumedChanges::extend(int64_t rounds) {
  if (rounds == config_->train.rounds) return;
  check_extension(config_, round_, rounds);
  config_ = config_.with([&](ExperimentConfig& values) { values.train.rounds = rounds; });
  taken_.rounds = rounds;
}

void ResumedChanges::take_keys(const RunRequest& request, const BegunRequest& begun, const SettledChange& as_run) {
  const auto changes = changes_of(request.config(begun.settings), begun.config, config_, as_run);
  if (changes.empty()) return;
  std::vector<std::string> refused;
  const auto scores = kept_scores().size();
  for (const auto& change : changes)
    if (const auto why = why_not_changeable(change.key, config_, scores); !why.empty())
      refused.push_back(concat(lines_of(std::span(&change, 1))[0], why == kKept ? "" : concat(" (", why, ")")));
  EK_CHECK(refused.empty(), kConfig, "--resume goes on with the config of ", folder_.string(), ": ",
           join(refused, "; "), "; a resumed run may change train.rounds by --set, what docs/operations.md lists, and ",
           "by --base FOLDER a base model that was moved");
  change_keys(changes, request, begun);
}

void ResumedChanges::change_keys(const std::vector<ChangedKey>& keys, const RunRequest& request,
                                 const BegunRequest& begun) {
  const auto asked = request.config(begun.settings);
  auto then = begun.config;
  take_values(keys, asked, then);
  taken_.keys = {.keys = keys, .asked = then.text()};
  for (const auto& [key, now, before] : keys)
    if (now && request.says(key)) taken_.keys.settings.push_back(concat(key, "=", *now));
  config_ = config_.with([&](ExperimentConfig& values) { take_values(keys, asked, values); });
}

void ResumedChanges::use_method(bool may_change) {
  taken_.method = has_changed_method(read_manifest(folder_), config_->method.entry(), may_change);
}

void ResumedChanges::admit(const std::optional<std::vector<std::string>>& allowed) {
  if (allowed) taken_.admission = admission_change(read_manifest(folder_), *allowed);
}

void ResumedChanges::use_base(const std::string& base) {
  if (base.empty()) return;
  const auto folder = moved_base(base);
  if (folder == config_->model.path) return;  // as an earlier command said
  taken_.base = folder;
  config_ = config_.with([&](ExperimentConfig& values) { values.model.path = taken_.base.string(); });
}

/// Compares the input files, the source of the chat template and the program with the manifest.
void ResumedChanges::check_files() {
  const auto training = files_in_partition(folder_);
  const auto scores = kept_scores();
  const auto manifest = read_manifest(folder_);
  taken_.files =
      check_input_files(folder_, manifest, models::find_model_folder(config_->model.path),
                        [&](const fs::path& changed) { return why_fixed(changed, config_, training, scores); });
  check_template_source(folder_, manifest);
  check_program(folder_, manifest);
}

/// Returns the scores up to the round that the run goes on from.
std::vector<EvaluationRecord> ResumedChanges::kept_scores() const {
  std::vector<EvaluationRecord> kept;
  for (const auto& line : read_evaluations(folder_).lines)
    if (line.end <= score_bytes_) kept.push_back(record::read<EvaluationRecord>(line.view()));
  return kept;
}

/// Returns true if clients would train the next round differently from what its journal may hold.
bool ResumedChanges::next_round_differs() const {
  if (taken_.method || (taken_.rounds && config_->training_depends_on_rounds())) return true;
  if (taken_.keys.keys.empty()) return false;
  const auto before = run_config(folder_);
  const auto may_be_drawn = [&](const RunConfig& config, int64_t client) {
    return config->clients.until(client).value_or(round_ + 1) > round_;
  };
  for (int64_t client = 0; client < config_->clients.count; ++client)
    if (may_be_drawn(before, client) != may_be_drawn(config_, client)) return true;
  return false;
}

void ResumedChanges::write() const {
  if (next_round_differs()) remove_path(Checkpoint(folder_ / run_file("checkpoint")).uploads(round_ + 1));
  if (taken_.rounds) set_aside_scores();
  if (!taken_.files.empty()) remove_path(folder_ / run_file("evaluating.jsonl"));  // answers to rows that are no more
  if (taken_.any()) {  // before config.toml, so that a reader between the two writes can detect the change
    const auto manifest = load_json<OrderedJson>(folder_ / kManifestFile, kCheckpoint);
    write_manifest(folder_, changed_manifest(manifest, taken_, config_, round_));
  }
  const auto manifest = read_manifest(folder_);
  const auto& text = JsonView(manifest, (folder_ / kManifestFile).string(), kCheckpoint).at("config").string();
  if (read_file(folder_ / kConfigFile) != text) write_file_atomic(folder_ / kConfigFile, text);
}

/// Moves scores to superseded.jsonl that a run with the new number of rounds would not have computed: those of the
/// round that was the last one.
void ResumedChanges::set_aside_scores() const {
  const auto file = folder_ / run_file("evaluations.jsonl");
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
      append_line(folder_ / run_file("superseded.jsonl"), std::string_view(own).substr(0, own.size() - 1));
    begin = line.end;
  }
  if (kept != text) write_file_atomic(file, kept);
}

}  // namespace evenkeel::fed
