#include "secure/node_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/plain/files.h"
#include "base/plain/os_error.h"
#include "base/plain/sealed.h"
#include "secure/round_json.h"

namespace evenkeel::secure {
namespace {

/// Writes over `file` and flushes it. \param flags  of open(2), beside those for writing
void write_private(const fs::path& file, std::string_view bytes, int flags) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  EK_CHECK(descriptor >= 0, kIo, file.string(), " cannot be written: ", os_error_text(errno));
  bool good = true;
  while (good && !bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    good = written > 0 || errno == EINTR;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  good = good && ::fsync(descriptor) == 0;
  const int error = errno;
  ::close(descriptor);
  EK_CHECK(good, kIo, file.string(), " cannot be written: ", os_error_text(error));
}

void overwrite(const fs::path& file) {
  if (is_file(file)) write_private(file, std::string(evenkeel::file_size(file), '\0'), 0);
}

}  // namespace

NodeStore::NodeStore(fs::path folder) : folder_(std::move(folder)) {
  make_folders(folder_);
  EK_CHECK(::chmod(folder_.c_str(), 0700) == 0, kIo, folder_.string(),
           ": its mode cannot be set: ", os_error_text(errno));
}

fs::path NodeStore::attempt_file() const { return folder_ / "attempt.json"; }
fs::path NodeStore::list_file() const { return folder_ / "summed.jsonl"; }

void NodeStore::save(const NodeAttempt& attempt) const {
  const auto next = folder_ / "attempt.next";
  overwrite(next);
  remove_path(next);
  std::string text = sealed(to_json(attempt)) + "\n";
  write_private(next, text, O_CREAT | O_EXCL);
  crypto::wipe(text);
  overwrite(attempt_file());  // it holds secrets too; `next` is on disk by now
  EK_CHECK(::rename(next.c_str(), attempt_file().c_str()) == 0, kIo, attempt_file().string(),
           " cannot be replaced: ", os_error_text(errno));
  flush_files(std::array{attempt_file()});
}

std::optional<NodeAttempt> NodeStore::load() const {
  // A process that was killed between two steps of save() leaves a whole attempt.next, and maybe an old one of zeros.
  for (const auto& file : {folder_ / "attempt.next", attempt_file()}) {
    if (!is_file(file)) continue;
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
    overwrite(file);
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
