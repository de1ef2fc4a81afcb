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

constexpr std::string_view kValid, kSent = "-sent";  // suffixes of file names

fs::path seal_of(fs::path file) { return file.replace_extension(".json"); }

/// REQUIRES that the file is not stored: new tensors beside an old seal would look damaged.
void write_state(const fs::path& file, const TensorMap& memory) {
  save_safetensors(file, memory);
  write_sealed(seal_of(file), record::write(Seals{{FileSeal::of(file)}}));
}

void remove_state(const fs::path& file) {
  remove_path(seal_of(file));
  remove_path(file);
}

}  // namespace

NodeMemory::NodeMemory(fs::path folder, std::string run) : folder_(std::move(folder)), run_(std::move(run)) {
  if (folder_.empty()) return;
  make_folders(folder_);
  remove_dead_parts(folder_, is_of_a_run);
  load();
}

fs::path NodeMemory::file(int64_t rounds, std::string_view suffix) const {
  return folder_ / concat(run_, "-", rounds, suffix, ".safetensors");
}

/// Checks the files of a state. \param seal  its file with the lengths and SHA-256
void NodeMemory::check(const fs::path& seal) const try {
  const Json json = read_sealed(seal);
  record::read<Seals>({json, seal.string(), kCheckpoint}).check(folder_);
} catch (const Error& error) {
  throw error.with_advice(concat("to go on without this state, remove ", seal.string()));
}

void NodeMemory::load() {
  const auto prefix = run_ + "-";
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const auto name = entry.path().stem().string();
    if (!name.starts_with(prefix) || entry.path().extension() != ".json") continue;
    const bool sent = name.ends_with(kSent);
    const auto number = name.substr(prefix.size(), name.size() - prefix.size() - (sent ? kSent.size() : 0));
    if (const auto rounds = parse_number<int64_t>(number))  // nothing: another run's, whose name begins with this one's
      load(*rounds, entry.path(), sent);
  }
}

/// Loads copies of the tensors, because training may write to them.
void NodeMemory::load(int64_t rounds, const fs::path& seal, bool sent) {
  check(seal);
  TensorMap state;
  for (const auto& [key, tensor] : load_safetensors(file(rounds, sent ? kSent : kValid)).tensors)
    state[key] = tensor.clone();
  if (sent)
    proposed_ = {rounds, std::move(state)};
  else
    known_[rounds] = std::move(state);
}

TensorMap NodeMemory::before(int64_t round) const {
  const auto later = known_.upper_bound(round);
  if (later == known_.begin()) return {};
  TensorMap copy;
  for (const auto& [key, tensor] : std::prev(later)->second) copy[key] = tensor.clone();
  return copy;
}

void NodeMemory::propose(int64_t round, TensorMap memory) {
  drop_proposed();
  if (!folder_.empty() && !(memory.empty() && is_empty())) write_state(file(round + 1, kSent), memory);
  proposed_ = {round + 1, std::move(memory)};
}

void NodeMemory::delivered() {
  if (!proposed_) return;
  auto [rounds, memory] = *proposed_;
  // The server resumed from an earlier round. Undone states are removed first, so that a node that is killed here never
  // starts with one of them.
  while (!known_.empty() && known_.rbegin()->first >= rounds) forget(std::prev(known_.end()));
  if (!memory.empty() || !is_empty()) store(rounds, std::move(memory));
  constexpr size_t kKept = 2;
  while (known_.size() > kKept) forget(known_.begin());
  drop_proposed();
}

void NodeMemory::decided(int64_t round, bool taken) {
  if (!proposed_ || proposed_->first != round + 1) return;
  if (taken)
    delivered();
  else
    drop_proposed();
}

void NodeMemory::asked(int64_t round) {
  if (proposed_ && proposed_->first <= round) delivered();
}

bool NodeMemory::is_empty() const { return known_.empty() || known_.rbegin()->second.empty(); }

void NodeMemory::store(int64_t rounds, TensorMap memory) {
  if (!folder_.empty()) write_state(file(rounds, kValid), memory);
  known_[rounds] = std::move(memory);
}

void NodeMemory::forget(std::map<int64_t, TensorMap>::iterator known) {
  if (!folder_.empty()) remove_state(file(known->first, kValid));
  known_.erase(known);
}

void NodeMemory::drop_proposed() {
  if (proposed_ && !folder_.empty()) remove_state(file(proposed_->first, kSent));
  proposed_.reset();
}

}  // namespace evenkeel::flower
