/// \file  What this process may use of the machine: memory, processors, room on disk. Asked anew at every call; a
/// container's limits count, not only what is built in. Knows nothing of torch.
///
/// Example:  if (needed > machine::memory().available) fail(kConfig, ...);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace evenkeel::machine {

struct Memory {
  int64_t physical = 0;  ///< bytes built in
  /// Bytes that this process can still fill: the lesser of MemAvailable and what the control groups above it leave
  /// (version 1 or 2; file pages that can be dropped do not count as used).
  int64_t available = 0;
  int64_t address_space =
      0;                   ///< bytes that can still be mapped or allocated (ulimit -v); the largest int64 without limit
  std::string limited_by;  ///< which of the two `available` is: "free memory" or "control group"
};

/// \param root  where /proc and /sys are, for tests. What the system does not say counts as no limit.
Memory memory(const std::filesystem::path& root = "/");

/// Processors that the affinity mask and the control group's quota leave, rounded up; at least 1.
int64_t processors(const std::filesystem::path& root = "/");

/// First value of `key` in /proc/cpuinfo, e.g. "model name"; empty when there is none.
std::string processor_field(std::string_view key, const std::filesystem::path& root = "/");

/// Bytes that this user can still write into `folder`, which need not be there yet: its nearest parent is asked.
int64_t free_disk(const std::filesystem::path& folder);

/// \throws kIo "FOLDER: WHAT needs 13.1 GiB, 2.0 GiB are free" when that is so.
void require_disk(const std::filesystem::path& folder, int64_t bytes, std::string_view what);

/// "13.1 GiB", "0.4 GiB", "812 MiB": for messages.
std::string bytes_text(int64_t bytes);

}  // namespace evenkeel::machine
