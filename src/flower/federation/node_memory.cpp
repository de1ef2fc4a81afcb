#include "flower/federation/node_memory.h"

#include <ATen/ATen.h>

#include "base/format/file_seal.h"
#include "base/format/record.h"
#include "base/plain/dead_parts.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/hex.h"
#include "base/plain/sealed.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

/// The file next to a tensor file, with its length and SHA-256.
struct Seals {
  std::vector<FileSeal> files;
  void visit(auto& field) { field("files", files); }
  void check(const fs::path& folder) const {
    for (const auto& seal : files) seal.check(folder);
  }
};

/// Returns true for a name that begins with the name of a run, 16 hexadecimal digits, and a hyphen.
bool is_of_a_run(std::string_view name) {
  constexpr size_t kDigits = 16;
  return is_hex(name.substr(0, kDigits), kDigits) && name.substr(kDigits).starts_with('-');
}

fs::path seal_of(fs::path file) { return file.replace_extension(".json"); }

}  // namespace

NodeMemory::NodeMemory(fs::path folder, std::string run) : folder_(std::move(folder)), run_(std::move(run)) {
  if (folder_.empty()) return;
  make_folders(folder_);
  remove_dead_parts(folder_, is_of_a_run);
  load();
}

fs::path NodeMemory::file(int64_t rounds) const { return folder_ / concat(run_, "-", rounds, ".safetensors"); }

/// Checks the files of a state. \param seal  its file with the lengths and SHA-256
void NodeMemory::check(const fs::path& seal) const try {
  const Json json = read_sealed(seal);
  record::read<Seals>({json, seal.string(), kCheckpoint}).check(folder_);
} catch (const Error& error) {
  throw error.with_advice(concat("to go on without this state, remove ", seal.string()));
}

/// Loads copies of the tensors, because training may write to them.
void NodeMemory::load() {
  const auto prefix = run_ + "-";
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(prefix) || entry.path().extension() != ".json") continue;
    const auto number = parse_number<int64_t>(entry.path().stem().string().substr(prefix.size()));
    if (!number) continue;  // of another run, whose name begins with this one's
    const int64_t rounds = *number;
    check(entry.path());
    auto& state = known_[rounds];  // it may be empty
    for (const auto& [key, tensor] : load_safetensors(file(rounds)).tensors) state[key] = tensor.clone();
  }
}

TensorMap NodeMemory::before(int64_t round) const {
  const auto later = known_.upper_bound(round);
  if (later == known_.begin()) return {};
  TensorMap copy;
  for (const auto& [key, tensor] : std::prev(later)->second) copy[key] = tensor.clone();
  return copy;
}

void NodeMemory::propose(int64_t round, TensorMap memory) { proposed_ = {round + 1, std::move(memory)}; }

void NodeMemory::delivered() {
  if (!proposed_) return;
  auto [rounds, memory] = std::move(*proposed_);
  proposed_.reset();
  // The server resumed from an earlier round. Undone states are removed first, so that a node that is killed here never
  // starts with one of them.
  while (!known_.empty() && known_.rbegin()->first >= rounds) forget(std::prev(known_.end()));
  const bool was_empty = known_.empty() || known_.rbegin()->second.empty();
  if (!memory.empty() || !was_empty) store(rounds, std::move(memory));
  constexpr size_t kKept = 2;
  while (known_.size() > kKept) forget(known_.begin());
}

/// REQUIRES that no state of so many rounds is stored: new tensors beside an old seal would look damaged.
void NodeMemory::store(int64_t rounds, TensorMap memory) {
  if (!folder_.empty()) {
    save_safetensors(file(rounds), memory);
    write_sealed(seal_of(file(rounds)), record::write(Seals{{FileSeal::of(file(rounds))}}));
  }
  known_[rounds] = std::move(memory);
}

void NodeMemory::forget(std::map<int64_t, TensorMap>::iterator known) {
  if (!folder_.empty()) {
    remove_path(seal_of(file(known->first)));
    remove_path(file(known->first));
  }
  known_.erase(known);
}

}  // namespace evenkeel::flower
