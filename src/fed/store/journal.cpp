#include "fed/store/journal.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/log.h"
#include "base/system/error_context.h"
#include "fed/store/hashed_file.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kUploadSuffix = ".upload.safetensors", kMemorySuffix = ".memory.safetensors",
                           kRecordSuffix = ".json";
constexpr size_t kMostWaiting = 256;  // files, all of which are open for a moment

int64_t bytes_of(const TensorMap& tensors) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return static_cast<int64_t>(bytes);
}

std::vector<fs::path> uploads_in(const fs::path& journal) {
  auto files = entries_of(journal);
  std::erase_if(files, [](const fs::path& file) { return !file.filename().string().ends_with(kUploadSuffix); });
  return files;
}

/// Removes an upload. The record is removed first, so that every record's files exist.
void remove_upload(const fs::path& upload) {
  const auto name = upload.filename().string();
  remove_path(upload.parent_path() / concat(name.substr(0, name.size() - kUploadSuffix.size()), kRecordSuffix));
  remove_path(upload);
}

}  // namespace

RoundJournal::RoundJournal(fs::path folder, double flush_s, const fs::path& replaces, int64_t background_bytes)
    : folder_(std::move(folder)), flush_s_(flush_s), background_bytes_(background_bytes) {
  make_folders(folder_);
  if (is_folder(replaces)) replaced_ = uploads_in(replaces);
  if (flush_s_ > 0) background_ = std::make_unique<Background>();
}

void RoundJournal::write(int64_t bytes, const std::string& context, const std::function<void()>& work) const {
  const auto in_its_context = [context, work] { in_context(context, work); };
  const auto job = context.empty() ? work : std::function<void()>(in_its_context);
  if (background_ && bytes <= background_bytes_) return background_->give(job);
  settle();
  job();
}

void RoundJournal::settle() const {
  if (background_) background_->finish();
}

fs::path RoundJournal::file(int64_t client, std::string_view suffix) const { return folder_ / concat(client, suffix); }

bool RoundJournal::holds(int64_t client) const {
  settle();
  for (const auto kind : {kUploadSuffix, kMemorySuffix, kRecordSuffix})
    EK_CHECK(!is_folder(file(client, kind)), kIo, file(client, kind).string(), ": is a folder, not a file");
  if (!path_exists(file(client, kRecordSuffix))) return false;
  try {
    const auto sent = record(client);
    for (const auto& seal : sent.files) seal.check(folder_);
    return find_seal(sent.files, file(client, kUploadSuffix).filename().string()) != nullptr;
  } catch (const Error& damage) {
    log::warning("[train] the upload of client ", client, " is made again: ", damage.what());
    return false;
  }
}

void RoundJournal::store(ClientRecord record, const Upload& upload, const TensorMap& memory,
                         const std::string& context) {
  if (const auto* remote = std::get_if<RemoteUpload>(&upload))
    return store_remote(std::move(record), *remote, memory, context);
  if (const auto* payload = encoded_payload(upload))
    return store_here(std::move(record), lora::DeferredPayload(*payload), memory, context);
  const auto* deferred = std::get_if<lora::DeferredPayload>(&upload);
  EK_CHECK(deferred, kInternal, "client ", record.id, " has no upload to store");
  store_here(std::move(record), *deferred, memory, context);
}

void RoundJournal::store_here(ClientRecord record, const lora::DeferredPayload& upload, const TensorMap& memory,
                              const std::string& context) {
  write(upload.bytes + bytes_of(memory), context, [=, this] { write_upload(record, upload, memory); });
}

void RoundJournal::store_remote(ClientRecord record, const RemoteUpload& upload, const TensorMap& memory,
                                const std::string& context) {
  record.bytes_up = upload.size.bytes;
  record.up_parts = upload.size.parts;
  record.files.clear();
  write(bytes_of(memory), context, [=, this] { finish(record, memory); });
}

void RoundJournal::write_upload(ClientRecord record, const lora::DeferredPayload& upload, const TensorMap& memory) {
  if (!replaced_.empty()) {
    remove_upload(replaced_.back());
    replaced_.pop_back();
  }
  const auto path = file(record.id, kUploadSuffix);
  HashedFile out(path, upload.bytes);
  record.up_parts = upload.pass([&](std::string_view bytes) { out.write(bytes); });
  record.files = {out.place()};
  waiting_.push_back(path);
  record.bytes_up = record.files[0].bytes;
  finish(std::move(record), memory);
}

void RoundJournal::finish(ClientRecord record, const TensorMap& memory) {
  if (!memory.empty()) {
    const auto path = file(record.id, kMemorySuffix);
    HashedFile out(path, bytes_of(memory));
    pass_safetensors_as(memory, memory, {}, {}, [&](std::string_view bytes) { out.write(bytes); });
    record.files.push_back(out.place());
    waiting_.push_back(path);
  }
  put(file(record.id, kRecordSuffix), sealed(record::write(record)) + "\n");
  written_[record.id] = std::move(record.files);
  const bool due = std::chrono::steady_clock::now() - flushed_ >= std::chrono::duration<double>(flush_s_);
  if (due || waiting_.size() >= kMostWaiting) flush_waiting();
}

void RoundJournal::put(const fs::path& path, std::string_view bytes) {
  AtomicFile out(path);
  out.write(bytes);
  out.place();
  waiting_.push_back(path);
}

void RoundJournal::discard(int64_t client) {
  settle();
  written_.erase(client);
  for (const auto suffix : {kRecordSuffix, kUploadSuffix, kMemorySuffix}) {
    remove_path(file(client, suffix));
    std::erase(waiting_, file(client, suffix));
  }
  flush_folder(folder_);
}

void RoundJournal::flush() {
  settle();
  flush_waiting();
}

void RoundJournal::flush_waiting() {
  flush_files(waiting_);
  waiting_.clear();
  flushed_ = std::chrono::steady_clock::now();
}

ClientRecord RoundJournal::record(int64_t client) const {
  settle();
  const auto path = file(client, kRecordSuffix);
  const Json json = read_sealed(path);
  auto sent = record::read<ClientRecord>({json, path.string(), kCheckpoint});
  if (const auto own = written_.find(client); own != written_.end() && own->second == sent.files)
    sent.files = own->second;  // these know when they were hashed
  return sent;
}

std::optional<fs::path> RoundJournal::checked(const ClientRecord& record, std::string_view suffix) const {
  const auto path = file(record.id, suffix);
  const auto* seal = find_seal(record.files, path.filename().string());
  if (seal == nullptr) return std::nullopt;
  seal->check(folder_);
  return path;
}

methods::ClientUpdate RoundJournal::update(const methods::ClientProfile& client) const {
  const auto sent = record(client.id);
  const auto path = checked(sent, kUploadSuffix);
  EK_CHECK(path, kCheckpoint, file(client.id, kRecordSuffix).string(), ": names no upload");
  return {client, lora::load_payload(*path), sent.steps};
}

fs::path RoundJournal::upload(int64_t client) const { return file(client, kUploadSuffix); }

TensorMap RoundJournal::memory(int64_t client) const {
  const auto path = checked(record(client), kMemorySuffix);
  if (!path) return {};
  TensorMap memory = load_safetensors(*path).tensors;
  for (auto& [name, tensor] : memory) tensor = tensor.clone();
  return memory;
}

}  // namespace evenkeel::fed
