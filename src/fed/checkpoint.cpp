#include "fed/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/files.h"

namespace evenkeel {
namespace {

constexpr std::string_view kExtra = "extra/", kMemory = "memory/";

/// The adapter states of a server, each under a prefix of its own.
struct Part {
  std::string_view prefix;
  AdapterState& (*of)(ServerState& state);
};
constexpr std::array kParts = {
    Part{"adapter/", [](ServerState& state) -> AdapterState& { return state.global.adapters; }},
    Part{"base_delta/", [](ServerState& state) -> AdapterState& { return state.global.base_delta; }},
    Part{"fixed/", [](ServerState& state) -> AdapterState& { return state.common.fixed; }},
    Part{"base_change/", [](ServerState& state) -> AdapterState& { return state.common.base_change; }},
};

at::Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

void add(TensorMap& out, std::string_view prefix, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) out.emplace(concat(prefix, name), tensor);
}

void add(TensorMap& out, std::string_view prefix, const AdapterState& adapters) {
  for (const auto& [site, factors] : adapters) {
    const auto put = [&](std::string_view name, const at::Tensor& tensor) {
      if (tensor.defined()) out.emplace(concat(prefix, site, "/", name), tensor);
    };
    put("a", factors.a);
    put("b", factors.b);
    put("core", factors.core);
    put("ranks", factors.ranks);
    put("scaling", scalar(factors.scaling));
  }
}

TensorMap flatten(ServerState state) {
  TensorMap out;
  for (const auto& part : kParts) add(out, part.prefix, part.of(state));
  add(out, kExtra, state.global.extras);
  add(out, kMemory, state.memory);
  return out;
}

void set_factor(LoraFactors& factors, std::string_view part, const at::Tensor& tensor) {
  if (part == "a") factors.a = tensor;
  if (part == "b") factors.b = tensor;
  if (part == "core") factors.core = tensor;
  if (part == "ranks") factors.ranks = tensor;
  if (part == "scaling") factors.scaling = tensor.item<double>();
}

/// Puts "fixed/<site>/a" in its place.
void place_factor(ServerState& state, std::string_view name, const at::Tensor& tensor) {
  for (const auto& part : kParts) {
    if (!name.starts_with(part.prefix)) continue;
    const size_t slash = name.rfind('/'), begin = part.prefix.size();
    set_factor(part.of(state)[std::string(name.substr(begin, slash - begin))], name.substr(slash + 1), tensor);
  }
}

ServerState unflatten(const TensorMap& tensors, int64_t round) {
  ServerState state{.round = round};
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(kExtra)) {
      state.global.extras.emplace(name.substr(kExtra.size()), tensor);
    } else if (name.starts_with(kMemory)) {
      state.memory.emplace(name.substr(kMemory.size()), tensor);
    } else {
      place_factor(state, name, tensor);
    }
  }
  return state;
}

TensorMap flatten(const ClientMemories& memories) {
  TensorMap out;
  for (const auto& [id, tensors] : memories) add(out, concat(id, "/"), tensors);
  return out;
}

// Copies: a client may write into its memory, and a mapped file must not be written to.
ClientMemories unflatten_memories(const TensorMap& tensors) {
  ClientMemories memories;
  for (const auto& [name, tensor] : tensors) {
    const size_t slash = name.find('/');
    memories[std::stoll(name.substr(0, slash))].emplace(name.substr(slash + 1), tensor.clone());
  }
  return memories;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  EK_CHECK(!error, kIo, folder.string(), " cannot be made: ", error.message());
}

}  // namespace

std::optional<Commit> Checkpoint::last() const {
  const auto marker = folder_ / "commit.json";
  if (!fs::exists(marker)) return std::nullopt;
  const Json json = load_json(marker, kCheckpoint);
  const bool complete = json.contains("round") && json.contains("record") && json.contains("records_before");
  EK_CHECK(complete, kCheckpoint, marker.string(), " is damaged: round, record or records_before is missing");
  return Commit{json["round"], json["record"], json["records_before"]};
}

Snapshot Checkpoint::load(int64_t round) const {
  const auto folder = round_folder(round);
  return {unflatten(load_safetensors(folder / "state.safetensors").tensors, round),
          unflatten_memories(load_safetensors(folder / "memory.safetensors").tensors)};
}

void Checkpoint::commit(const Snapshot& snapshot, const Commit& commit) const {
  const auto folder = round_folder(commit.round);
  make_folder(folder);
  save_safetensors(folder / "state.safetensors", flatten(snapshot.state));
  save_safetensors(folder / "memory.safetensors", flatten(snapshot.memories));
  const OrderedJson marker = {
      {"round", commit.round}, {"records_before", commit.records_before}, {"record", commit.record}};
  write_file_atomic(folder_ / "commit.json", marker.dump());
  remove_folders_but(std::array{folder});
}

void Checkpoint::repair() const {
  if (!fs::exists(folder_)) return;
  const auto done = last();
  const int64_t round = done ? done->round : 0;
  remove_folders_but(std::array{round_folder(round), uploads(round + 1)});
}

fs::path Checkpoint::uploads(int64_t round) const { return folder_ / concat("uploads-", round); }

fs::path Checkpoint::round_folder(int64_t round) const { return folder_ / concat("round-", round); }

void Checkpoint::remove_folders_but(std::span<const fs::path> kept) const {
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (entry.is_directory() && std::find(kept.begin(), kept.end(), entry.path()) == kept.end())
      old.push_back(entry.path());
  for (const auto& path : old) fs::remove_all(path);
}

}  // namespace evenkeel
