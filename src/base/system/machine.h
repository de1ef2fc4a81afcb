/// \file  Reports what this process may use of the machine: memory, processors, disk space. Values are read at every
/// call and include the limits of containers (control groups). Does not depend on LibTorch.
///
/// Example:  if (needed > machine::memory().available) fail(kConfig, ...);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace evenkeel::machine {

/// The memory of the machine and of this process.
struct Memory {
  int64_t physical = 0;  ///< installed memory in bytes; 0 if /proc/meminfo does not name it
  /// Bytes that this process can still allocate and fill: the smaller of MemAvailable and what the control groups
  /// (version 1 or 2) allow. Inactive file pages, which the system drops first, do not count as used.
  int64_t available = 0;
  /// Bytes that can still be mapped or allocated (ulimit -v); the largest int64 without limit.
  int64_t address_space = 0;
  std::string limited_by;  ///< the source of `available`: "free memory" or "control group"
};

/// Reads the current memory limits. Limits that the system does not report count as unlimited.
/// \param root  the folder that contains /proc and /sys; tests pass another one
Memory memory(const std::filesystem::path& root = "/");

/// Returns the number of processors that the affinity mask and the control group's quota allow, rounded up; at least 1.
int64_t processors(const std::filesystem::path& root = "/");

/// Returns the first value of `key` in /proc/cpuinfo, e.g. of "model name"; empty when the key is missing.
std::string processor_field(std::string_view key, const std::filesystem::path& root = "/");

/// Returns how many bytes this user can still write into `folder`, or the largest int64 when the system does not
/// answer. If the folder does not exist, its nearest existing parent is used.
int64_t free_disk(const std::filesystem::path& folder);

/// Checks that `bytes` fit on the disk of `folder`. \throws kIo "FOLDER: WHAT needs 13.1 GiB, 2.0 GiB are free".
void require_disk(const std::filesystem::path& folder, int64_t bytes, std::string_view what);

/// Returns a number of bytes as text for messages: below 0.1 GiB in whole MiB, rounded up ("81 MiB"), else in GiB with
/// one decimal ("0.4 GiB", "13.1 GiB").
std::string bytes_text(int64_t bytes);

}  // namespace evenkeel::machine
