#include "fed/run/new_run_folder.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "base/format/command_line.h"
#include "base/plain/dead_parts.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/folders.h"
#include "fed/store/manifest.h"
#include "fed/store/run_checkpoint.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kFederation = run_file("federation"), kRows = run_file("rows");
constexpr std::array kFirstFiles = {run_file("config.toml"), run_file("partition.json"),
                                    run_file("chat_template.jinja"), kManifestFile, kUnfinished};

bool names_exactly(const fs::path& file, std::string_view name) {
  return file.filename() == name || is_temporary_of(file, name);
}

/// Returns true if the folder holds only a lock, temporary files of the marker, rows that were written for the run, and
/// with `federation` the folder of a server that waits for its clients.
bool only_locked(const fs::path& folder, bool federation = false) {
  const auto entries = entries_of(folder);
  return std::all_of(entries.begin(), entries.end(), [&](const fs::path& entry) {
    return FolderLock::is_lock(entry) || names_exactly(entry, kUnfinished) || entry.filename() == kRows ||
           (federation && entry.filename() == kFederation);
  });
}

bool only_began(const fs::path& folder) {
  return is_folder(folder) && (path_exists(folder / kUnfinished) || only_locked(folder));
}

/// Removes everything that an unfinished RunFolder::create() made. The marker stays: without it the rest would belong
/// to nobody.
void remove_leftovers(const fs::path& folder) {
  for (const auto name : kFirstFiles)
    if (name != kUnfinished) remove_path(folder / name);
  remove_leftover_parts(folder);
  const auto checkpoint = folder / run_file("checkpoint");
  remove_path(checkpoint / "commit.json");
  remove_parts(checkpoint, {"commit.json"});
  std::error_code not_empty;  // then it is somebody else's, and the folder not empty
  fs::remove(checkpoint, not_empty);
}

/// Checks that the folder holds only what only_locked() allows. \throws kIo
void check_empty(const fs::path& folder, bool federation) {
  EK_CHECK(only_locked(folder, federation), kIo, folder.string(),
           ": exists already and is not empty; choose another --out");
}

/// Checks that no server waited in the folder for the clients of a run. \throws kIo with advice
void check_nobody_awaited(const fs::path& folder) {
  EK_CHECK(!awaits_clients(folder), kIo, folder.string(),
           ": a server has waited here for its clients: go on by the same command with --resume, or choose another "
           "--out; see who has joined by: ",
           command_line({"status", folder.string()}));
}

}  // namespace

FolderLock prepare_folder(const fs::path& folder, bool goes_on) {
  check_unused(folder);
  EK_CHECK(!holds_run(folder), kIo, folder.string(),
           " holds a run already: choose another --out, or resume it with: ", resume_command(folder));
  if (!goes_on) check_nobody_awaited(folder);
  if (!only_began(folder)) make_new_folder(folder);
  FolderLock lock(folder);
  EK_CHECK(!holds_run(folder), kIo, folder.string(),
           " holds a run by now, another process began it: choose another --out, or see it by: ",
           command_line({"status", folder.string()}));
  if (only_began(folder)) remove_leftovers(folder);
  check_empty(folder, goes_on);
  write_file_atomic(folder / kUnfinished, "");
  return lock;
}

void abandon_folder(const fs::path& folder, FolderLock lock) {
  remove_leftovers(folder);
  remove_path(folder / kFederation);
  remove_path(folder / kUnfinished);
  { const FolderLock last = std::move(lock); }
  std::error_code not_empty;  // then somebody else has put something there
  fs::remove(folder, not_empty);
}

bool holds_run(const fs::path& folder) { return holds_manifest(folder); }

bool nothing_began(const fs::path& folder) {
  return !holds_run(folder) && (!path_exists(folder) || only_began(folder));
}

bool awaits_clients(const fs::path& folder) {
  const auto federation = folder / kFederation;
  return !holds_run(folder) && only_began(folder) && is_folder(federation) && !entries_of(federation).empty();
}

void check_unused(const fs::path& folder) {
  FolderLock::check_free(folder, concat("wait for its end, or choose another --out; see how far it is by: ",
                                        command_line({"status", folder.string()})));
}

void remove_leftover_parts(const fs::path& folder) {
  remove_dead_parts(folder, [](std::string_view name) { return is_run_file(name) || name == "report.html"; });
  const auto is_json = [](std::string_view name) { return name.ends_with(".json"); };
  remove_dead_parts(folder / kFederation, is_json);
  remove_dead_parts(folder / run_file("items"), [](std::string_view name) { return name.starts_with("round-"); });
  remove_dead_parts(folder / run_file("tensorboard"),
                    [](std::string_view name) { return name.starts_with("events."); });
  for (const auto adapter : {run_file("adapter"), run_file("best")})
    remove_parts(folder / adapter, {"adapter_model.safetensors", "adapter_config.json"});
}

}  // namespace evenkeel::fed
