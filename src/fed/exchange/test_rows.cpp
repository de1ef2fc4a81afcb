#include "fed/exchange/test_rows.h"

namespace evenkeel::fed {

std::shared_ptr<const scoring::PreparedTask> TestRowsCache::get(const TestRowsKey& key, const Make& make) {
  const std::scoped_lock lock(mutex_);
  if (const auto known = tasks_.find(key); known != tasks_.end()) return known->second;
  auto made = make();
  const size_t bytes = made->bytes();
  if (bytes <= most_bytes_ - bytes_) {
    tasks_.emplace(key, made);
    bytes_ += bytes;
  }
  return made;
}

}  // namespace evenkeel::fed
