#include "data/left_out_rows.h"

#include <mutex>
#include <set>

#include "base/plain/log.h"

namespace evenkeel::data {

void LeftOutRows::add(const Error& error, bool is_required) {
  if (is_required || error.kind() != kData) throw error;
  const std::string_view text = error.what();  // "[data] a.jsonl:17: ..."
  if (count_++ == 0) first_fault_ = text.substr(text.find("] ") + 2);
}

std::string LeftOutRows::note(int64_t rows, std::string_view cannot_be_used) const {
  if (count_ == 0) return {};
  return concat(count_, " of ", rows, " rows ", cannot_be_used, " and are left out; the first: ", first_fault_);
}

void warn_once(std::string_view area, const std::string& note) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  const std::lock_guard lock(mutex);
  if (!note.empty() && logged.insert(note).second) log::warning(area, note);
}

}  // namespace evenkeel::data
