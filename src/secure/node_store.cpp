#include "secure/node_store.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>

#include "base/plain/files.h"
#include "base/plain/os_error.h"
#include "base/plain/private_file.h"
#include "base/plain/sealed.h"
#include "secure/round_json.h"

namespace evenkeel::secure {

NodeStore::NodeStore(fs::path folder) : folder_(std::move(folder)) {
  make_folders(folder_);
  EK_CHECK(::chmod(folder_.c_str(), 0700) == 0, kIo, folder_.string(),
           ": its mode cannot be set: ", os_error_text(errno));
}

fs::path NodeStore::attempt_file() const { return folder_ / "attempt.json"; }
fs::path NodeStore::list_file() const { return folder_ / "summed.jsonl"; }

void NodeStore::save(const NodeAttempt& attempt) const {
  const auto next = folder_ / "attempt.next";
  overwrite_private_file(next);
  remove_path(next);
  std::string text = sealed(to_json(attempt)) + "\n";
  const bool made = write_new_private_file(next, text);
  crypto::wipe(text);
  EK_CHECK(made, kIo, next.string(), " was made by another process");
  overwrite_private_file(attempt_file());  // it holds secrets too; `next` is on disk by now
  EK_CHECK(::rename(next.c_str(), attempt_file().c_str()) == 0, kIo, attempt_file().string(),
           " cannot be replaced: ", os_error_text(errno));
  flush_files(std::array{attempt_file()});
}

namespace {

/// Returns whether a process was killed while it overwrote the file: an attempt does not begin with a zero.
bool is_overwritten(const fs::path& file) {
  const auto text = read_file(file);
  return text.empty() || text.front() == '\0';
}

}  // namespace

std::optional<NodeAttempt> NodeStore::load() const {
  // A process that was killed between two steps of save() leaves a whole attempt.next, and maybe an old one of zeros.
  // One that was killed within wipe() leaves zeros alone.
  for (const auto& file : {folder_ / "attempt.next", attempt_file()}) {
    if (!is_file(file) || is_overwritten(file)) continue;
    try {
      const auto json = read_sealed(file);
      return read_as<NodeAttempt>(JsonView(json, file.string(), kCheckpoint));
    } catch (const Error&) {
      if (file == attempt_file()) throw;
    }
  }
  return {};
}

void NodeStore::wipe() const {
  for (const auto& file : {folder_ / "attempt.next", attempt_file()}) {
    overwrite_private_file(file);
    remove_path(file);
  }
}

std::optional<SummedSet> NodeStore::find(const std::string& run, int64_t round) const {
  const auto read = read_sealed_lines(list_file());
  for (const auto& line : read.whole().lines)
    if (line.view().at("run").string() == run && line.view().at("round").integer(0) == round)
      return read_as<SummedSet>(line.view());
  return {};
}

void NodeStore::store(const std::string& run, int64_t round, const SummedSet& set) {
  auto line = to_json(set);
  line["run"] = run;
  line["round"] = round;
  append_sealed(list_file(), line);
}

}  // namespace evenkeel::secure
