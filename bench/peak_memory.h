/// \file  Reads and resets the peak resident memory of this process, as the system counts it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace evenkeel {

/// Resets the peak to the memory that is resident now.
inline void restart_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

inline int64_t peak_memory_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  return 0;
}

}  // namespace evenkeel
