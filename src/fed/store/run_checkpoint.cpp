#include "fed/store/run_checkpoint.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/plain/dead_parts.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "base/plain/text.h"
#include "fed/store/manifest.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kMarker = "commit.json", kState = "state.safetensors", kMemory = "memory.safetensors";
constexpr std::string_view kRound = "round-", kUploads = "uploads-";

Commit read_commit(const fs::path& file) {
  const Json json = read_sealed(file);
  return record::read<Commit>({json, file.string(), kCheckpoint});
}

std::vector<std::string> files_of_round() { return {std::string(kState), std::string(kMemory), std::string(kMarker)}; }

/// Returns the number t of "round-<t>", or nothing for another name.
std::optional<int64_t> number_after(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return parse_number<int64_t>(name.substr(prefix.size()));
}

using NumberFilter = std::function<bool(int64_t number)>;

/// Removes the rounds and the journals of uploads for whose numbers a filter returns true.
void remove_numbered(const fs::path& folder, const NumberFilter& is_old_round, const NumberFilter& is_old_journal) {
  for (const auto& entry : entries_of(folder)) {
    const auto name = entry.filename().string();
    const auto round = number_after(kRound, name), journal = number_after(kUploads, name);
    if ((round && is_old_round(*round)) || (journal && is_old_journal(*journal))) remove_path(entry);
  }
}

}  // namespace

void Checkpoint::begin() const {
  make_folders(folder_);
  write_sealed(folder_ / kMarker, record::write(Commit{}));
}

Commit Checkpoint::last() const {
  const auto marker = folder_ / kMarker;
  EK_CHECK(!is_file(folder_), kCheckpoint, folder_.string(), " is a file, expected a folder: move it away");
  EK_CHECK(path_exists(marker), kCheckpoint, marker.string(), " is missing: every run has it from its beginning");
  return read_commit(marker);
}

CommittedRound Checkpoint::load(Commit commit) const {
  const auto folder = round_folder(commit.round);
  CommittedRound round{std::move(commit), {}, folder};
  if (round.commit.round == 0) return round;
  for (const auto name : {kState, kMemory}) {
    const auto* seal = find_seal(round.commit.files, name);
    EK_CHECK(seal, kCheckpoint, (folder_ / kMarker).string(), ": names no ", name);
    seal->check(folder);
  }
  EK_CHECK(read_commit(folder / kMarker) == round.commit, kCheckpoint, (folder / kMarker).string(), ": differs from ",
           (folder_ / kMarker).string());
  round.snapshot = {load_state(folder / kState, round.commit.round), load_memories(folder / kMemory)};
  return round;
}

CommittedRound Checkpoint::load_kept(int64_t round) const {
  const auto file = round_folder(round) / kMarker;
  auto commit = read_commit(file);
  EK_CHECK(commit.round == round, kCheckpoint, file.string(), ": is of round ", commit.round);
  return load(std::move(commit));
}

CommittedRound Checkpoint::read() const {
  try {
    for (;;) {
      const auto marker = last();
      try {
        return load(marker);
      } catch (const Error&) {
        if (last() == marker) throw;  // else a run beside us has gone on, and the round we were reading is gone
      }
    }
  } catch (const Error& damage) {
    throw with_recovery_hint(damage);
  }
}

CommittedRound Checkpoint::read(int64_t round) const {
  if (round == 0) return load({});
  EK_CHECK(path_exists(round_folder(round)), kCheckpoint, "--from-round is ", round, ", allowed for ", folder_.string(),
           ": ", join(whole_rounds()));
  return load_kept(round);
}

std::vector<int64_t> Checkpoint::whole_rounds() const {
  std::vector<int64_t> whole = {0};
  if (!is_folder(folder_)) return whole;
  for (const auto& entry : entries_if_there(folder_)) {
    const auto round = number_after(kRound, entry.filename().string());
    try {
      if (round) whole.push_back(load_kept(*round).commit.round);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): what cannot be read is not whole
    }
  }
  std::sort(whole.begin(), whole.end(), std::greater<>());
  return whole;
}

Error Checkpoint::with_recovery_hint(const Error& damage, const RoundFilter& fits) const {
  for (const int64_t round : whole_rounds()) {
    if (round > 0 && fits && !fits(round)) continue;
    const auto way = round > 0 ? concat("round ", round, " is whole, it is gone on from by: ")
                               : std::string("no round can be gone on from, it begins anew by: ");
    const auto command = resume_command(folder_.parent_path(), {"--from-round", std::to_string(round)});
    return damage.with_advice(concat("nothing was changed; ", way, command));
  }
  return damage;
}

void Checkpoint::commit(const Snapshot& snapshot, const std::string& record) const {
  const int64_t round = snapshot.state.round;
  const auto folder = round_folder(round);
  make_folders(folder);
  save_state(folder / kState, snapshot.state);
  save_memories(folder / kMemory, snapshot.memories);
  const Commit commit{round, record, {FileSeal::of(folder / kState), FileSeal::of(folder / kMemory)}};
  write_sealed(folder / kMarker, record::write(commit));
  write_sealed(folder_ / kMarker, record::write(commit));
}

void Checkpoint::settle(const Commit& commit) const {
  make_folders(folder_);
  bool standing = false;
  try {
    standing = last() == commit;
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): it is about to be written anew
  }
  if (!standing) write_sealed(folder_ / kMarker, record::write(commit));
  remove_parts(folder_, {std::string(kMarker)});
  for (const int64_t round : {commit.round, commit.round - 1}) remove_parts(round_folder(round), files_of_round());
  remove_dead_parts(uploads(commit.round + 1), [](std::string_view) { return true; });
  clear(commit.round, commit.round + 1);
}

void Checkpoint::keep_only(const std::vector<int64_t>& rounds) const {
  remove_parts(folder_, {std::string(kMarker)});
  for (const auto& entry : entries_of(folder_)) {
    const auto round = number_after(kRound, entry.filename().string());
    if (!round) continue;
    if (std::find(rounds.begin(), rounds.end(), *round) == rounds.end())
      remove_path(entry);
    else
      remove_parts(entry, files_of_round());
  }
}

void Checkpoint::remove_older(int64_t round) const {
  remove_numbered(
      folder_, [round](int64_t other) { return other < round - 1; }, [round](int64_t other) { return other < round; });
}

void Checkpoint::clear(int64_t last_round, int64_t first_journal) const {
  remove_numbered(
      folder_, [=](int64_t round) { return round != last_round && round != last_round - 1; },
      [=](int64_t round) { return round < first_journal || round > last_round + 1; });
}

fs::path Checkpoint::uploads(int64_t round) const { return folder_ / concat(kUploads, round); }

fs::path Checkpoint::round_folder(int64_t round) const { return folder_ / concat(kRound, round); }

void remove_parts(const fs::path& folder, const std::vector<std::string>& names) {
  remove_dead_parts(folder, [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); });
}

}  // namespace evenkeel::fed
