#include "train/pretraining_folder.h"

#include <algorithm>
#include <vector>

#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/system/folder_lock.h"

namespace evenkeel::train {
namespace {

constexpr std::string_view kResolved = "pretrain.toml", kRecords = "pretrain.jsonl", kTokenizer = "tokenizer.json";
constexpr std::string_view kMarker = "checkpoint.json", kStaging = ".model";
constexpr std::string_view kTensors = "checkpoint-", kSuffix = ".safetensors";

std::string tensors_of(int64_t step) { return concat(kTensors, step, kSuffix); }

/// Returns whether `file` is "checkpoint-<step>.safetensors" or an incomplete file of that name.
bool is_tensors(const fs::path& file) {
  const auto name = file.filename().string();
  if (!name.starts_with(kTensors)) return false;
  const size_t end = std::min(name.size(), name.find_first_not_of("0123456789", kTensors.size()));
  const auto whole = concat(name.substr(0, end), kSuffix);
  return end > kTensors.size() && (name == whole || is_temporary_of(file, whole));
}

int64_t size_of(const fs::path& file) {
  return path_exists(file) ? static_cast<int64_t>(evenkeel::file_size(file)) : 0;
}

}  // namespace

fs::path PretrainingFolder::tokenizer() const { return folder_ / kTokenizer; }

bool PretrainingFolder::is_free() const {
  if (!path_exists(folder_)) return true;
  const auto entries = entries_of(folder_);
  return std::all_of(entries.begin(), entries.end(), [](const fs::path& file) {
    return FolderLock::is_lock(file) || file.filename() == kMarker || is_temporary_of(file, kMarker) ||
           is_temporary_of(file, kResolved);
  });
}

bool PretrainingFolder::finished() const {
  return path_exists(folder_ / "config.json") && !path_exists(folder_ / kMarker);
}

fs::path PretrainingFolder::begun_with() const {
  auto file = folder_ / kResolved;
  EK_CHECK(path_exists(file), kIo, folder_.string(), " cannot be resumed: ", kResolved, " is missing");
  return file;
}

void PretrainingFolder::begin(const std::string& resolved, const std::vector<FileSeal>& inputs) const {
  write_marker(0, {}, inputs);
  write_file_atomic(folder_ / kResolved, resolved);
}

std::vector<FileSeal> PretrainingFolder::inputs() const {
  const auto marker = folder_ / kMarker;
  std::vector<FileSeal> seals;
  if (!path_exists(marker)) return seals;
  const Json json = read_sealed(marker);
  if (const auto inputs = JsonView(json, marker.string(), kCheckpoint).find("inputs")) from_json(*inputs, seals);
  return seals;
}

void PretrainingFolder::open() {
  const auto marker = folder_ / kMarker, records = folder_ / kRecords;
  EK_CHECK(path_exists(marker), kCheckpoint, marker.string(),
           " is missing: an unfinished run has it from its beginning");
  const Json json = read_sealed(marker);
  const JsonView view(json, marker.string(), kCheckpoint);
  std::vector<FileSeal> seals;
  from_json(view.at("files"), seals);
  for (const auto& seal : seals) seal.check(folder_);
  step_ = view.at("step").integer(0);
  record_bytes_ = view.at("records").integer(0);
  const auto lines = read_sealed_lines(records);
  EK_CHECK(lines.whole().bytes() >= record_bytes_, kCheckpoint, records.string(), ": holds ", lines.bytes(),
           " bytes of whole lines, the checkpoint was made after ", record_bytes_);
}

void PretrainingFolder::roll_back() const {
  remove_path(folder_ / kStaging);
  if (step_ == 0) remove_path(tokenizer());
  shorten_file(folder_ / kRecords, record_bytes_);
  for (const auto name : {kResolved, kTokenizer, kMarker})
    remove_where([&](const fs::path& file) { return is_temporary_of(file, name); });
  remove_tensors_but(step_);
}

void PretrainingFolder::remove_run() const {
  for (const auto name : {kTokenizer, kRecords, kResolved, kMarker}) remove_path(folder_ / name);
}

TensorMap PretrainingFolder::tensors() const {
  return step_ > 0 ? load_safetensors(folder_ / tensors_of(step_)).tensors : TensorMap{};
}

void PretrainingFolder::save(int64_t step, const TensorMap& tensors) const {
  const auto file = folder_ / tensors_of(step);
  save_safetensors(file, tensors);
  write_marker(step, {FileSeal::of(file), FileSeal::of(tokenizer())}, inputs());
  remove_tensors_but(step);
}

void PretrainingFolder::record(const OrderedJson& line) const { append_sealed(folder_ / kRecords, line); }

void PretrainingFolder::finish(const std::function<void(const fs::path&)>& save_model) const {
  const auto staging = folder_ / kStaging;
  save_model(staging);
  for (const auto& file : entries_of(staging)) fs::rename(file, folder_ / file.filename());
  remove_path(staging);
  flush_folder(folder_);
  remove_path(folder_ / kMarker);
  remove_old_checkpoint();
}

void PretrainingFolder::write_marker(int64_t step, const std::vector<FileSeal>& files,
                                     const std::vector<FileSeal>& inputs) const {
  write_sealed(folder_ / kMarker, {{"step", step},
                                   {"records", size_of(folder_ / kRecords)},
                                   {"files", to_json(files)},
                                   {"inputs", to_json(inputs)}});
}

void PretrainingFolder::remove_tensors_but(int64_t step) const {
  remove_where([&](const fs::path& file) { return is_tensors(file) && file.filename() != tensors_of(step); });
}

void PretrainingFolder::remove_where(const std::function<bool(const fs::path&)>& removes) const {
  for (const auto& file : entries_of(folder_))
    if (removes(file)) remove_path(file);
}

}  // namespace evenkeel::train
