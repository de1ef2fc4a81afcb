#include "fed/journal.h"

#include <ATen/ATen.h>

#include "base/files.h"
#include "base/json.h"

namespace evenkeel {
namespace {

OrderedJson counts_json(const RoutingByLayer& counts) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [layer, stats] : counts) {
    const auto counts_E = stats.counts.contiguous();
    const int64_t* data = counts_E.const_data_ptr<int64_t>();
    json[layer] = {{"tokens", stats.tokens}, {"counts", std::vector<int64_t>(data, data + counts_E.numel())}};
  }
  return json;
}

RoutingByLayer counts_from(const Json& json) {
  RoutingByLayer counts;
  for (const auto& [layer, entry] : json.items()) {
    auto& stats = counts[layer];
    stats.tokens = entry.at("tokens");
    stats.counts = at::tensor(entry.at("counts").get<std::vector<int64_t>>(), at::kLong);
  }
  return counts;
}

}  // namespace

OrderedJson to_json(const ClientRecord& record) {
  return {{"id", record.id},
          {"steps", record.steps},
          {"tokens", record.tokens},
          {"targets", record.targets},
          {"loss_sum", record.loss_sum},
          {"first_loss", record.first_loss},
          {"last_loss", record.last_loss},
          {"bytes_down", record.bytes_down},
          {"bytes_up", record.bytes_up},
          {"down_parts", record.down_parts},
          {"up_parts", record.up_parts},
          {"counts", counts_json(record.counts)},
          {"metrics", record.metrics},
          {"flops", record.flops},
          {"seconds", record.seconds}};
}

ClientRecord client_record(const Json& json) {
  return {.id = json.at("id"),
          .steps = json.at("steps"),
          .tokens = json.at("tokens"),
          .targets = json.at("targets"),
          .loss_sum = json.at("loss_sum"),
          .first_loss = json.at("first_loss"),
          .last_loss = json.at("last_loss"),
          .bytes_down = json.at("bytes_down"),
          .bytes_up = json.at("bytes_up"),
          .down_parts = json.at("down_parts"),
          .up_parts = json.at("up_parts"),
          .counts = counts_from(json.at("counts")),
          .metrics = json.at("metrics"),
          .flops = json.at("flops"),
          .seconds = json.at("seconds")};
}

RoundJournal::RoundJournal(fs::path folder, TransportDtype dtype) : folder_(std::move(folder)), dtype_(dtype) {
  std::error_code error;
  fs::create_directories(folder_, error);
  EK_CHECK(!error, kIo, folder_.string(), " cannot be made: ", error.message());
}

fs::path RoundJournal::file(int64_t client, std::string_view suffix) const { return folder_ / concat(client, suffix); }

bool RoundJournal::holds(int64_t client) const { return fs::exists(file(client, ".json")); }

void RoundJournal::store(ClientRecord record, const Payload& upload, const TensorMap& memory) const {
  record.bytes_up = save_payload(file(record.id, ".upload.safetensors"), upload, dtype_);
  record.up_parts = payload_parts(upload, dtype_);
  if (!memory.empty()) save_safetensors(file(record.id, ".memory.safetensors"), memory);
  write_file_atomic(file(record.id, ".json"), to_json(record).dump());
}

ClientRecord RoundJournal::record(int64_t client) const {
  return client_record(load_json(file(client, ".json"), kCheckpoint));
}

ClientUpdate RoundJournal::update(const ClientProfile& client) const {
  return {client, load_payload(file(client.id, ".upload.safetensors")), record(client.id).steps};
}

TensorMap RoundJournal::memory(int64_t client) const {
  const auto path = file(client, ".memory.safetensors");
  if (!fs::exists(path)) return {};
  TensorMap memory = load_safetensors(path).tensors;
  for (auto& [name, tensor] : memory) tensor = tensor.clone();
  return memory;
}

}  // namespace evenkeel
