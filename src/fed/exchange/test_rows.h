/// \file  Test rows of a run, read and tokenised once for all evaluations of the process.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "scoring/prepared_task.h"

namespace evenkeel::fed {

/// Selects test rows of a run.
struct TestRowsKey {
  std::string task;
  std::optional<int64_t> own_of{};  ///< the client whose own rows are scored; nothing: the rows of everybody
  int64_t limit = 0;                ///< number of rows; 0: all
  std::vector<int64_t> rows{};      ///< indices of the rows that are scored; empty: all within the limit

  auto operator<=>(const TestRowsKey&) const = default;
};

/// Stores prepared tasks up to 128 MiB in all. What does not fit any more is prepared for each evaluation. The key does
/// not name the config, so one object serves one resolved config. Thread-safe.
class TestRowsCache {
 public:
  using Make = std::function<std::shared_ptr<const scoring::PreparedTask>()>;

  /// \param most_bytes  memory limit for all stored tasks
  explicit TestRowsCache(size_t most_bytes = size_t{128} << 20) : most_bytes_(most_bytes) {}
  /// Returns the task of `key`, made by `make` if it is not stored.
  std::shared_ptr<const scoring::PreparedTask> get(const TestRowsKey& key, const Make& make);

 private:
  std::mutex mutex_;
  size_t most_bytes_, bytes_ = 0;
  std::map<TestRowsKey, std::shared_ptr<const scoring::PreparedTask>> tasks_;
};

}  // namespace evenkeel::fed
