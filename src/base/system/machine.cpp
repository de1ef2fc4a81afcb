#include "base/system/machine.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "base/plain/error.h"

namespace evenkeel::machine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// Returns the text after `key` in a file of "key value" or "key : value" lines, or an empty text.
std::string field(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const bool whole_key = colon == std::string::npos ? line.find_first_of(" \t", key.size()) == key.size()
                                                      : line.find_first_not_of(" \t", key.size()) == colon;
    if (!whole_key) continue;
    const auto start = line.find_first_not_of(" \t", colon == std::string::npos ? key.size() : colon + 1);
    return start == std::string::npos ? std::string() : line.substr(start);
  }
  return {};
}

/// Parses the number at the beginning of `text`. Returns `otherwise` for "max", "unlimited", "" and numbers beyond 64
/// bits.
int64_t number(const std::string& text, int64_t otherwise) {
  std::istringstream in(text);
  int64_t value = 0;
  return in >> value ? value : otherwise;
}

std::string content(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Returns the folders of this process' control group and of its parents, innermost first. In a container the listed
/// path may be the host's and may not exist; then only the mount point remains.
/// \param controller  "memory" or "cpu"; empty: version 2
std::vector<fs::path> control_groups(const fs::path& root, std::string_view controller) {
  std::ifstream in(root / "proc/self/cgroup");
  fs::path mount = root / "sys/fs/cgroup";
  if (!controller.empty()) mount /= controller;
  std::vector<fs::path> folders;
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = concat(",", line.substr(first + 1, second - first - 1), ",");
    if (controllers.find(concat(",", controller, ",")) == std::string::npos) continue;
    for (auto path = fs::path(line.substr(second + 1)).relative_path(); !path.empty(); path = path.parent_path())
      folders.push_back(mount / path);
    break;
  }
  folders.push_back(mount);
  return folders;
}

/// Returns the free memory of a control group. Inactive file pages count as free.
int64_t free_in_group(const fs::path& group, const char* limit_file, const char* usage_file, const char* inactive) {
  const int64_t limit = number(content(group / limit_file), kUnlimited);
  if (limit == kUnlimited) return kUnlimited;
  const int64_t used = number(content(group / usage_file), 0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used - number(field(group / "memory.stat", inactive), 0)));
}

int64_t free_in_groups(const fs::path& root) {
  int64_t left = kUnlimited;
  for (const auto& group : control_groups(root, ""))
    left = std::min(left, free_in_group(group, "memory.max", "memory.current", "inactive_file"));
  for (const auto& group : control_groups(root, "memory"))
    left =
        std::min(left, free_in_group(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"));
  return left;
}

int64_t free_in_address_space(const fs::path& root) {
  const int64_t limit = number(field(root / "proc/self/limits", "Max address space"), kUnlimited);
  if (limit == kUnlimited) return kUnlimited;
  constexpr int64_t kKibi = 1024;
  return std::max<int64_t>(0, limit - kKibi * number(field(root / "proc/self/status", "VmSize"), 0));
}

/// Counts the processors in a list like "0-3,8".
int64_t processors_in(const std::string& list) {
  int64_t count = 0;
  std::istringstream in(list);
  for (std::string range; std::getline(in, range, ',');) {
    const auto dash = range.find('-');
    const int64_t first = number(range, 0);
    count += dash == std::string::npos ? 1 : number(range.substr(dash + 1), first) - first + 1;
  }
  return count;
}

/// Returns the quota in processors, or infinity without a quota.
double quota(const fs::path& root) {
  double share = std::numeric_limits<double>::infinity();
  const auto join = [&](int64_t time, int64_t period) {
    if (time > 0 && period > 0) share = std::min(share, static_cast<double>(time) / static_cast<double>(period));
  };
  for (const auto& group : control_groups(root, "")) {
    const auto line = content(group / "cpu.max");  // "200000 100000" or "max 100000"
    join(number(line, 0), number(line.substr(std::min(line.size(), line.find(' '))), 0));
  }
  for (const auto& group : control_groups(root, "cpu"))
    join(number(content(group / "cpu.cfs_quota_us"), 0), number(content(group / "cpu.cfs_period_us"), 0));
  return share;
}

}  // namespace

Memory memory(const fs::path& root) {
  constexpr int64_t kKibi = 1024;
  const auto info = root / "proc/meminfo";
  const int64_t free = kKibi * number(field(info, "MemAvailable"), kUnlimited / kKibi), left = free_in_groups(root);
  return {.physical = kKibi * number(field(info, "MemTotal"), 0),
          .available = std::min(free, left),
          .address_space = free_in_address_space(root),
          .limited_by = left < free ? "control group" : "free memory"};
}

int64_t processors(const fs::path& root) {
  const int64_t allowed = std::max<int64_t>(1, processors_in(field(root / "proc/self/status", "Cpus_allowed_list")));
  const double share = quota(root);
  return share < static_cast<double>(allowed) ? std::max<int64_t>(1, std::llround(std::ceil(share))) : allowed;
}

std::string processor_field(std::string_view key, const fs::path& root) { return field(root / "proc/cpuinfo", key); }

int64_t free_disk(const fs::path& folder) {
  std::error_code error;
  fs::path there = fs::absolute(folder, error);
  while (!fs::is_directory(there, error) && there.has_relative_path()) there = there.parent_path();
  struct statvfs status = {};
  if (::statvfs(there.c_str(), &status) != 0) return kUnlimited;
  int64_t bytes = 0;
  return __builtin_mul_overflow(static_cast<int64_t>(status.f_bavail), static_cast<int64_t>(status.f_frsize), &bytes)
             ? kUnlimited
             : bytes;
}

void require_disk(const fs::path& folder, int64_t bytes, std::string_view what) {
  const int64_t free = free_disk(folder);
  EK_CHECK(bytes <= free, kIo, folder.string(), ": ", what, " needs ", bytes_text(bytes), ", ", bytes_text(free),
           " are free");
}

std::string bytes_text(int64_t bytes) {
  constexpr double kMebi = 1024.0 * 1024.0, kGibi = 1024.0 * kMebi;
  const auto value = static_cast<double>(bytes);
  char text[48];
  if (value < 0.1 * kGibi)
    std::snprintf(text, sizeof text, "%.0f MiB", std::ceil(value / kMebi));
  else
    std::snprintf(text, sizeof text, "%.1f GiB", value / kGibi);
  return text;
}

}  // namespace evenkeel::machine
