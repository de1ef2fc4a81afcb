/// \file  Reads how many operators and waits a simulated GPU has counted (tests/gpu/device_memory.h).
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace evenkeel::testing {

/// What a program asked of the simulated GPU so far.
struct GpuCounts {
  int64_t operators = 0;  ///< operators that a GPU would compute
  int64_t waits = 0;      ///< times the host waited for the GPU
};

/// Returns the path of the file of counts (EVENKEEL_SIMULATED_GPU_COUNTS); null without a simulated GPU that counts.
inline const char* gpu_counts_file() { return std::getenv("EVENKEEL_SIMULATED_GPU_COUNTS"); }

/// Returns the counts so far. REQUIRES gpu_counts_file().
inline GpuCounts gpu_counts() {
  std::ifstream file(gpu_counts_file(), std::ios::binary);
  GpuCounts counts;
  file.read(reinterpret_cast<char*>(&counts), sizeof(counts));
  return counts;
}

}  // namespace evenkeel::testing
