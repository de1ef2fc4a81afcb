#include "fed/run_folder.h"

#include <algorithm>
#include <array>

#include "base/files.h"
#include "fed/manifest.h"
#include "lora/peft.h"

namespace evenkeel {
namespace {

/// Stands in the folder from prepare() until the manifest is written. What lies beside it then is ours to replace.
constexpr std::string_view kMarker = ".unfinished";
constexpr std::array<std::string_view, 4> kFirstFiles = {"config.toml", "partition.json", "manifest.json", kMarker};

bool left_by_beginning(const fs::path& file) {
  const auto name = file.filename().string();
  return std::any_of(kFirstFiles.begin(), kFirstFiles.end(),
                     [&](auto known) { return name.find(known) != std::string::npos; });
}

/// The marker stands there, or nothing but the temporary file it was being written as.
bool only_began(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  if (fs::exists(folder / kMarker)) return true;
  return std::all_of(fs::directory_iterator(folder), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with(kMarker);
  });
}

void remove_leftovers(const fs::path& folder) {
  if (!only_began(folder)) return;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder))
    if (left_by_beginning(entry.path())) leftovers.push_back(entry.path());
  for (const auto& file : leftovers) fs::remove(file);
}

int64_t size_of(const fs::path& file) { return fs::exists(file) ? static_cast<int64_t>(fs::file_size(file)) : 0; }

void shorten(const fs::path& file, int64_t bytes) {
  if (size_of(file) > bytes) fs::resize_file(file, static_cast<uintmax_t>(bytes));
}

/// Cuts what follows the last line break: a line that was being written when the program was stopped.
void drop_partial_line(const fs::path& file) {
  if (!fs::exists(file)) return;
  const std::string text = read_file(file);
  const size_t end = text.rfind('\n');
  shorten(file, end == std::string::npos ? 0 : static_cast<int64_t>(end) + 1);
}

/// Temporary files of atomic writes (base/files.h) that were being written when the program was killed.
void remove_half_written(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(".part-") != std::string::npos) parts.push_back(entry.path());
  for (const auto& part : parts) fs::remove(part);
}

OrderedJson partition_json(const Shards& shards) {
  return {{"files", shards.files},
          {"cut", shards.cut},
          {"without_target", shards.without_target},
          {"clients", shards.rows}};
}

}  // namespace

void RunFolder::prepare(const fs::path& folder) {
  EK_CHECK(!holds_run(folder), kIo, folder.string(),
           " holds a run already: go on with it by --resume, or choose another --out");
  remove_leftovers(folder);
  make_new_folder(folder);
  write_file_atomic(folder / kMarker, "");
}

bool RunFolder::holds_run(const fs::path& folder) { return fs::exists(folder / "manifest.json"); }

bool RunFolder::nothing_began(const fs::path& folder) {
  if (holds_run(folder)) return false;
  return !fs::exists(folder) || only_began(folder);
}

RunFolder RunFolder::create(const fs::path& folder, const Experiment& e) {
  write_file_atomic(folder / "config.toml", e.config.text());
  write_file_atomic(folder / "partition.json", partition_json(e.shards).dump());
  const auto files = input_files(e.config, e.model_folder, e.shards.files);
  write_file_atomic(folder / "manifest.json", make_manifest(files).dump(2) + "\n");
  fs::remove(folder / kMarker);
  return RunFolder(folder);
}

RunFolder RunFolder::open(const fs::path& folder) {
  EK_CHECK(holds_run(folder), kIo, folder.string(), " holds no run: manifest.json is missing");
  RunFolder run(folder);
  run.repair();
  return run;
}

void RunFolder::repair() const {
  fs::remove(folder_ / kMarker);
  for (const auto& folder : {folder_, folder_ / "checkpoint", folder_ / "adapter"}) remove_half_written(folder);
  checkpoint_.repair();
  drop_partial_line(folder_ / "evaluations.jsonl");
  const auto rounds = folder_ / "rounds.jsonl";
  const auto last = checkpoint_.last();
  const int64_t before = last ? last->records_before : 0;
  const int64_t line = last ? static_cast<int64_t>(last->record.size()) + 1 : 0;
  if (size_of(rounds) == before + line) return;
  shorten(rounds, before);
  if (last) append_line(rounds, last->record);
}

void RunFolder::commit(const Snapshot& snapshot, const OrderedJson& record, const Experiment& e) const {
  const auto rounds = folder_ / "rounds.jsonl";
  const Commit commit{snapshot.state.round, record.dump(), size_of(rounds)};
  checkpoint_.commit(snapshot, commit);
  append_line(rounds, commit.record);
  save_adapter(snapshot.state, e);
}

void RunFolder::save_adapter(const ServerState& state, const Experiment& e) const {
  const auto adapter = whole_adapter(state);
  save_peft_adapter(folder_ / "adapter", adapter, peft_info(e.model_folder.string(), adapter));
}

void RunFolder::add_evaluation(const OrderedJson& line) const {
  append_line(folder_ / "evaluations.jsonl", line.dump());
}

std::vector<Json> RunFolder::evaluations() const {
  const auto file = folder_ / "evaluations.jsonl";
  std::vector<Json> lines;
  if (!fs::exists(file)) return lines;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, file.string(), kCheckpoint));
  return lines;
}

ExperimentConfig run_config(const fs::path& folder) {
  EK_CHECK(RunFolder::holds_run(folder), kIo, folder.string(), " holds no run: manifest.json is missing");
  auto config = ExperimentConfig::load(folder / "config.toml");
  config.output.dir = folder.string();
  return config;
}

}  // namespace evenkeel
