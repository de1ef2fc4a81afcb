/// \file  Caches the test rows of a run, so that each task is read and tokenised once for all evaluations of the
/// process.
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
  std::optional<int64_t> own_of{};  ///< the client whose own rows are scored; nullopt: the test rows of all clients
  int64_t limit = 0;                ///< number of rows, of each client that has its own; 0: all
  std::vector<int64_t> left_out{};  ///< clients whose own rows are left out (RunConfig::left_out_after())

  auto operator<=>(const TestRowsKey&) const = default;
};

/// Stores prepared tasks up to a memory limit. A task that no longer fits is prepared again for each evaluation. The
/// key does not contain the config, so use one object per settled config. Thread-safe.
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
