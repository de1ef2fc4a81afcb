#include "study/definition/run_claims.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "study/definition/study_lock.h"

namespace evenkeel::study {
namespace {

constexpr std::string_view kName = ".claims-";

std::string name_of(size_t number) { return concat(kName, number); }

bool is_claimed(const LockHolder& holder, size_t run) {
  std::istringstream runs(holder.note);
  for (size_t claimed = 0; runs >> claimed;)
    if (claimed == run) return true;
  return false;
}

void check_unclaimed(const fs::path& folder, const LockHolder& holder, std::span<const size_t> runs,
                     std::span<const std::string> labels) {
  for (size_t i = 0; i < runs.size(); ++i)
    EK_CHECK(!is_claimed(holder, runs[i]), kIo, folder.string(), ": another process makes ", labels[i], " (",
             holder.name, "): wait for its end, or choose other runs by --shard or --only");
}

/// Returns the number of a file of claims, or nothing for another file.
std::optional<size_t> number_of(const fs::path& file) {
  const auto name = file.filename().string();
  return name.starts_with(kName) ? parse_number<size_t>(std::string_view(name).substr(kName.size())) : std::nullopt;
}

}  // namespace

RunClaims::RunClaims(const fs::path& folder, std::span<const size_t> runs, std::span<const std::string> labels) {
  const auto guard = lock_state(folder);
  size_t number = 1;
  for (const auto& entry : entries_of(folder)) {
    const auto taken = number_of(entry);
    if (!taken) continue;
    if (const auto holder = FileLock::holder(entry)) {
      check_unclaimed(folder, *holder, runs, labels);
      number = std::max(number, *taken + 1);
    } else {
      remove_path(entry);  // of a process that has ended
    }
  }
  lock_.emplace(folder / name_of(number), folder.string(), join(runs, " "));
}

bool RunClaims::is_claim(const fs::path& entry) {
  const auto name = entry.filename().string();
  if (!name.starts_with(kName)) return false;
  const auto end = name.find_first_not_of("0123456789", kName.size());
  return end != kName.size() && FileLock::belongs_to(entry, name.substr(0, end));
}

}  // namespace evenkeel::study
